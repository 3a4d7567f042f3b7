/** Hands content to the person's own disk. */

import { downloadName } from './fileNames';

export function saveBlob(content: Blob, path: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = url;
  link.download = downloadName(path);
  document.body.appendChild(link);
  link.click();
  link.remove();
  // The browser has begun to read it by then.
  window.setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
