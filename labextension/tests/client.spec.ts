import { describe, expect, it } from 'vitest';

import { ApiError, troubleOf } from '../src/api/errors';
import { execution, FakeServer, FakeStream, INFO, json, session } from './helpers';

async function caught(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => expect.fail('it was no error'),
    (error: unknown) => error
  );
}

describe('ExecClient', () => {
  it('asks below the base URL, with the token of the settings', async () => {
    const server = new FakeServer({ 'GET ': json(INFO) });
    expect(await server.client.info()).toEqual(INFO);
    expect(server.requests[0]?.headers.get('Authorization')).toBe('token secret');
  });

  it('lists sessions and executions', async () => {
    const server = new FakeServer({
      'GET sessions': json({ sessions: [session('a')] }),
      'GET sessions?ended=true': json({ sessions: [session('a'), session('b', { state: 'ended' })] }),
      'GET sessions/a/executions?limit=7': json({ executions: [execution('e')] })
    });
    expect(await server.client.sessions(false)).toHaveLength(1);
    expect(await server.client.sessions(true)).toHaveLength(2);
    expect((await server.client.executions('a', 7))[0]?.id).toBe('e');
  });

  it('sends JSON', async () => {
    const server = new FakeServer({ 'POST executions/e/input': json({}) });
    await server.client.answerInput('e', 'yes');
    expect(await server.requests[0]?.json()).toEqual({ value: 'yes' });
    expect(server.requests[0]?.headers.get('Content-Type')).toBe('application/json');
  });

  it('encodes names part by part', async () => {
    const server = new FakeServer({ 'GET sessions/a/files/b%20c/d%3F.txt': new Response('content') });
    expect(await (await server.client.file('a', 'b c/d?.txt')).text()).toBe('content');
  });

  it('does not load a file that is larger than what can be shown', async () => {
    const answer = (): Response => new Response('content', { headers: { 'Content-Length': '7' } });
    const server = new FakeServer({ 'GET sessions/a/files/b.txt': answer });
    expect(await server.client.smallFile('a', 'b.txt', 6)).toBeNull();
    const again = new FakeServer({ 'GET sessions/a/files/b.txt': answer });
    expect(await (await again.client.smallFile('a', 'b.txt', 7))?.text()).toBe('content');
  });

  it('asks for a change by the time that the file had after it', async () => {
    const change = { path: 'b?', before: 'x', after: 'y' };
    const server = new FakeServer({ 'GET sessions/a/changes/b%3F?mtime=12%3A00': json(change) });
    const file = { path: 'b?', size_bytes: 1, mtime: '12:00', mime_type: 'text/plain' };
    expect(await server.client.fileChange('a', file)).toEqual(change);
  });

  it('raises what the server says', async () => {
    const refusal = json({ message: 'no such session', code: 'session_not_found' }, 404);
    const server = new FakeServer({ 'DELETE sessions/a': refusal });
    const error = await caught(server.client.shutdown('a'));
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 404, code: 'session_not_found', message: 'no such session' });
  });

  it('follows an event log, and closes it when it is left', async () => {
    const stream = new FakeStream();
    const server = new FakeServer({ 'GET executions/e/events?after=3': stream.response });
    stream.write(': keep-alive\n\n');
    stream.send('stream', { seq: 4, name: 'stdout', text: 'a' }, '4');
    for await (const event of server.client.events('e', 3, new AbortController().signal)) {
      expect(event).toEqual({ seq: 4, type: 'stream', name: 'stdout', text: 'a' });
      break;
    }
    expect(stream.closed).toBe(true);
    expect(server.requests[0]?.headers.get('Prefer')).toBe('return=minimal');
  });

  it('takes no page for events', async () => {
    const server = new FakeServer({
      'GET events': new Response('<html>', { headers: { 'Content-Type': 'text/html' } })
    });
    const feed = server.client.feed(null, new AbortController().signal, () => undefined);
    expect(await caught(feed.next())).toBeInstanceOf(ApiError);
  });
});

describe('troubleOf', () => {
  it('tells no extension, an old one, a refusal, a mistake in policies and no server apart', async () => {
    const cases: [Response, string][] = [
      [new Response('<h1>404</h1>', { status: 404 }), 'no-extension'],
      [json({ message: 'Not Found', reason: null }, 404), 'no-extension'],
      [json({ message: 'no such path', code: 'not_found' }, 404), 'too-old'],
      [json({ message: 'Forbidden' }, 403), 'forbidden'],
      [json({ message: 'a mistake', code: 'policies_invalid' }, 503), 'policies'],
      [json({ message: 'later', code: 'unavailable' }, 503), 'unreachable']
    ];
    for (const [answer, trouble] of cases) {
      const server = new FakeServer({ 'GET ': answer });
      expect(troubleOf(await caught(server.client.info()))).toBe(trouble);
    }
    expect(troubleOf(new TypeError('Failed to fetch'))).toBe('unreachable');
  });
});
