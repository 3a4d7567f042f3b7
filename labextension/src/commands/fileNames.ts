/** Names of files that are made for a person: pure. */

/** Return a notebook's name for a session, of letters and digits that every file system takes. */
export function notebookName(name: string, sessionId: string): string {
  const plain = name
    .normalize('NFC')
    .replace(/[^\p{L}\p{N}_-]+/gu, '-')
    .replace(/^[-.]+|-+$/g, '')
    .slice(0, 60);
  return `${plain || `session-${sessionId.replace(/^.*_/, '').slice(0, 8)}`}.ipynb`;
}

/** Return the path that was wished for, and what to try if it is taken. */
export function notebookPaths(wish: string): string[] {
  const stem = wish.trim().replace(/\.ipynb$/i, '');
  return Array.from({ length: 20 }, (_, n) => (n === 0 ? `${stem}.ipynb` : `${stem}-${n + 1}.ipynb`));
}

/** Return what a downloaded file is called: the last part of its path, with nothing in it that hides another part. */
export function downloadName(path: string): string {
  const last = path.split('/').pop() ?? '';
  return last.replace(/[\p{Cc}\p{Cf}\\/:*?"<>|]/gu, '_') || 'download';
}
