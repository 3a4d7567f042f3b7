import { describe, expect, it } from 'vitest';

import { follow, type IFollowed, Slots } from '../src/outputs/follower';
import { execution, FakeServer, FakeStream, json, until } from './helpers';

describe('follow', () => {
  it('shows what comes, and ends with the execution', async () => {
    const stream = new FakeStream();
    const server = new FakeServer({ 'GET executions/e/events?after=0': stream.response });
    const shown: IFollowed[] = [];
    const done = follow(server.client, 'e', true, new AbortController().signal, each => shown.push(each));
    stream.send('stream', { seq: 1, name: 'stdout', text: 'a' }, '1');
    await until(() => shown.length > 0);
    stream.send('end', { seq: 2, execution: execution('e') }, '2');
    await done;
    expect(shown[shown.length - 1]?.outputs).toMatchObject({
      seq: 2,
      items: [{ text: 'a' }],
      end: { id: 'e' }
    });
    expect(stream.closed).toBe(true);
  });

  it('resumes after the last event that it has', async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const server = new FakeServer({
      'GET executions/e/events?after=0': first.response,
      'GET executions/e/events?after=1': second.response
    });
    const shown: IFollowed[] = [];
    const done = follow(server.client, 'e', true, new AbortController().signal, each => shown.push(each));
    first.send('stream', { seq: 1, name: 'stdout', text: 'a' }, '1');
    await until(() => shown.length > 0);
    first.fail();
    second.send('stream', { seq: 2, name: 'stdout', text: 'b' }, '2');
    second.send('end', { seq: 3, execution: execution('e') }, '3');
    await done;
    expect(shown[shown.length - 1]).toMatchObject({ problem: null, outputs: { items: [{ text: 'ab' }] } });
  });

  it('shows the record when the log is no longer kept', async () => {
    const record = { ...execution('e'), outputs: [{ output_type: 'stream', name: 'stdout', text: 'old' }] };
    const server = new FakeServer({
      'GET executions/e/events?after=0': json({ message: 'gone', code: 'log_expired' }, 410),
      'GET executions/e': json(record)
    });
    const shown: IFollowed[] = [];
    await follow(server.client, 'e', true, new AbortController().signal, each => shown.push(each));
    expect(shown[shown.length - 1]).toMatchObject({ problem: null, outputs: { items: [{ text: 'old' }] } });
  });

  it('asks again when the server has too many streams', async () => {
    const stream = new FakeStream();
    const refusal = json({ message: 'too many streams', code: 'too_many_requests' }, 429);
    const server = new FakeServer({ 'GET executions/e/events?after=0': [refusal, stream.response] });
    const shown: IFollowed[] = [];
    const done = follow(server.client, 'e', true, new AbortController().signal, each => shown.push(each));
    await until(() => shown.some(({ problem }) => problem === 'too many streams'));
    stream.send('end', { seq: 1, execution: execution('e') }, '1');
    await done;
    expect(shown[shown.length - 1]).toMatchObject({ problem: null, outputs: { end: { id: 'e' } } });
  });

  it('says what the server refuses, and does not ask again', async () => {
    const refusal = json({ message: 'no such execution', code: 'execution_not_found' }, 404);
    const server = new FakeServer({ 'GET executions/e/events?after=0': refusal });
    const shown: IFollowed[] = [];
    await follow(server.client, 'e', true, new AbortController().signal, each => shown.push(each));
    expect(shown[shown.length - 1]?.problem).toBe('no such execution');
    expect(server.requests).toHaveLength(1);
  });

  it('reads what has ended while as many run as there are connections for', async () => {
    const running = [1, 2, 3, 4].map(() => new FakeStream());
    const ended = new FakeStream();
    const server = new FakeServer({
      'GET executions/e/events?after=0': ended.response,
      ...Object.fromEntries(
        running.map((stream, n) => [`GET executions/${n}/events?after=0`, stream.response])
      )
    });
    const stop = new AbortController();
    const last: IFollowed[] = [];
    const all = running.map((_, n) =>
      follow(server.client, String(n), true, stop.signal, each => (last[n] = each))
    );
    await until(() => server.requests.length === 3);
    expect(last.map(each => each?.waiting)).toEqual([undefined, undefined, undefined, true]);
    ended.send('end', { seq: 1, execution: execution('e') }, '1');
    await follow(server.client, 'e', false, new AbortController().signal, () => undefined);
    expect(server.requests).toHaveLength(4);
    stop.abort();
    await Promise.all(all);
  });

  it('closes the connection when nobody looks any more', async () => {
    const stream = new FakeStream();
    const server = new FakeServer({ 'GET executions/e/events?after=0': stream.response });
    const stop = new AbortController();
    const done = follow(server.client, 'e', true, stop.signal, () => undefined);
    await until(() => server.requests.length > 0);
    stop.abort();
    await done;
    expect(server.requests[0]?.signal.aborted).toBe(true);
  });
});

describe('Slots', () => {
  it('lets no more in than there is room for, and nobody who has left', async () => {
    const slots = new Slots(2);
    const ends: (() => void)[] = [];
    let inside = 0;
    const work = async (): Promise<void> => {
      inside += 1;
      await new Promise<void>(resolve => ends.push(resolve));
      inside -= 1;
    };
    const never = new AbortController();
    const leaving = new AbortController();
    const all = [never, never, leaving, never].map(each => slots.run(each.signal, () => undefined, work));
    await until(() => ends.length === 2);
    expect(inside).toBe(2);
    leaving.abort();
    ends.shift()?.();
    await until(() => ends.length === 2);
    expect(inside).toBe(2);
    ends.forEach(end => end());
    await Promise.all(all);
    expect(inside).toBe(0);
  });
});
