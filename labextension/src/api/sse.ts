/** Server-sent events: text in, frames out. No I/O. */

export interface IFrame {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}

/** One frame may be no longer than this; a server that sends more is not one of ours. */
export const MAX_FRAME_CHARS = 128 * 1024 * 1024;

/** Takes text as it comes from the network, in pieces of any size. */
export class FrameParser {
  /** Return the frames that are complete with this piece. Comments keep a connection alive and are no frames. */
  push(text: string): IFrame[] {
    const frames: IFrame[] = [];
    // A piece that ends in "\r" may go on with "\n": whether that is one line end or two is known with the next one.
    let rest = text;
    if (this._afterCR && rest.startsWith('\n')) {
      rest = rest.slice(1);
    }
    if (text.length > 0) {
      this._afterCR = text.endsWith('\r');
    }
    const lines = rest.split(/\r\n|\n|\r/);
    const last = lines.pop() ?? '';
    for (const line of lines) {
      this._pieces.push(line);
      this._line(this._pieces.join(''), frames);
      this._pieces = [];
    }
    this._pieces.push(last);
    this._length += rest.length;
    if (frames.length > 0) {
      this._length = last.length;
    }
    if (this._length > MAX_FRAME_CHARS) {
      throw new Error('An event of the server is too long.');
    }
    return frames;
  }

  private _line(line: string, frames: IFrame[]): void {
    if (line === '') {
      if (this._data.length > 0) {
        frames.push({ id: this._id, event: this._event, data: this._data.join('\n') });
      }
      this._event = 'message';
      this._data = [];
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'id' && !value.includes('\0')) {
      this._id = value;
    } else if (field === 'event') {
      this._event = value;
    } else if (field === 'data') {
      this._data.push(value);
    }
  }

  private _pieces: string[] = [];
  private _afterCR = false;
  private _length = 0;
  private _id: string | null = null;
  private _event = 'message';
  private _data: string[] = [];
}
