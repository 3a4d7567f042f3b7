/** Preview of a file: text or picture, never HTML. Pure, but for the reading of a blob. */

import type { MimeBundle } from '../api/types';

export const MAX_TEXT_BYTES = 256 * 1024;
export const MAX_PICTURE_BYTES = 5 * 1024 * 1024;

const PICTURE = /^image\/(png|jpeg|gif|webp|bmp|svg\+xml)$/;

export type IPreview =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'picture'; readonly data: MimeBundle }
  | { readonly kind: 'none' };

/** Return how large a file of this type may be to be shown. */
export function maxPreviewBytes(mimeType: string): number {
  return PICTURE.test(mimeType) ? MAX_PICTURE_BYTES : MAX_TEXT_BYTES;
}

/** Return text as text, whatever it is: a page of an agent's is not run. Pictures are drawn as such alone. */
export async function previewOf(content: Blob, mimeType: string): Promise<IPreview> {
  const bytes = new Uint8Array(await content.arrayBuffer());
  if (PICTURE.test(mimeType) && mimeType !== 'image/svg+xml') {
    let binary = '';
    for (let at = 0; at < bytes.length; at += 0x8000) {
      binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    }
    return { kind: 'picture', data: { [mimeType]: btoa(binary) } };
  }
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return { kind: 'none' };
  }
  if (text.includes('\0')) {
    return { kind: 'none' };
  }
  return mimeType === 'image/svg+xml'
    ? { kind: 'picture', data: { [mimeType]: text } }
    : { kind: 'text', text };
}
