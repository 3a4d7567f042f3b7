import { describe, expect, it } from 'vitest';

import { FrameParser } from '../src/api/sse';

const TEXT =
  ': keep-alive\n\nid: b-1\nevent: session\ndata: {"a":\ndata: 1}\n\nevent: reset\r\ndata: {}\r\n\r\ndata: three\r\rid: b-4\n\n';
const FRAMES = [
  { id: 'b-1', event: 'session', data: '{"a":\n1}' },
  { id: 'b-1', event: 'reset', data: '{}' },
  { id: 'b-1', event: 'message', data: 'three' }
];

describe('FrameParser', () => {
  it('reads frames, comments and all line ends', () => {
    expect(new FrameParser().push(TEXT)).toEqual(FRAMES);
  });

  it('reads the same from pieces of any size', () => {
    for (let size = 1; size < TEXT.length; size += 1) {
      const parser = new FrameParser();
      const frames = [];
      for (let at = 0; at < TEXT.length; at += size) {
        frames.push(...parser.push(TEXT.slice(at, at + size)));
      }
      expect(frames).toEqual(FRAMES);
    }
  });

  it('keeps what is not complete', () => {
    const parser = new FrameParser();
    expect(parser.push('data: 1\n')).toEqual([]);
    expect(parser.push('\n')).toEqual([{ id: null, event: 'message', data: '1' }]);
  });
});
