import { afterEach, describe, expect, it, vi } from 'vitest';

import { delaySeconds, restartDelaySeconds } from '../src/model/backoff';
import { ExecModel } from '../src/model/model';
import type { Answer } from './helpers';
import { execution, FakeServer, FakeStream, INFO, json, Late, session } from './helpers';
import { until } from './helpers';

const models: ExecModel[] = [];

afterEach(() => {
  models.splice(0).forEach(model => model.dispose());
  vi.restoreAllMocks();
});

function connected(
  events: Answer[],
  answers: { [path: string]: Answer | Answer[] } = {}
): [FakeServer, ExecModel] {
  vi.spyOn(Math, 'random').mockReturnValue(0);
  const server = new FakeServer({
    'GET ': json(INFO),
    'GET sessions': json({ sessions: [session('s1')] }),
    'GET tokens': json({ message: 'no', code: 'missing_scope' }, 403),
    'GET approvals': json({ message: 'no', code: 'owner_only' }, 403),
    'GET grants': json({ grants: [] }),
    'GET events': events,
    ...answers
  });
  const model = new ExecModel(server.client);
  models.push(model);
  return [server, model];
}

describe('ExecModel', () => {
  it('lists everything after a reset, and then follows', async () => {
    const stream = new FakeStream();
    const [, model] = connected([stream.response]);
    stream.send('reset', {}, 'b-1');
    await until(() => model.state.connection.status === 'live');
    expect([...model.state.sessions.keys()]).toEqual(['s1']);
    expect(model.state.info).toEqual(INFO);
    stream.send('session', { session: session('s2', { state: 'busy' }) }, 'b-2');
    await until(() => model.state.sessions.size === 2);
  });

  it('asks for nothing before it is to', async () => {
    const stream = new FakeStream();
    const server = new FakeServer({ 'GET events': [stream.response] });
    let begin = (): void => undefined;
    const ready = new Promise<void>(resolve => (begin = resolve));
    const model = new ExecModel(server.client, ready);
    models.push(model);
    await Promise.resolve();
    expect(server.requests).toHaveLength(0);
    begin();
    await until(() => server.requests.length === 1);
  });

  it('looks up what sessions use when it is told to, and keeps it while they change', async () => {
    const stream = new FakeStream();
    const measured = 'GET sessions?memory=true&no_track_activity=1';
    const [server, model] = connected([stream.response], {
      [measured]: [
        json({ sessions: [session('s1', { memory_bytes: 200e6 }), session('s2', { memory_bytes: null })] }),
        json({ sessions: [session('s1')] })
      ]
    });
    await model.measure(); // there is nothing to ask yet
    stream.send('reset', {}, 'b-1');
    await until(() => model.state.connection.status === 'live');
    expect(server.requests.some(request => request.url.includes('memory'))).toBe(false);
    await Promise.all([model.measure(), model.measure()]);
    expect(server.requests.filter(request => request.url.includes('memory'))).toHaveLength(1);
    stream.send('session', { session: session('s1', { state: 'busy', memory_bytes: null }) }, 'b-2');
    await until(() => model.state.sessions.get('s1')?.state === 'busy');
    expect([...model.state.memory]).toEqual([['s1', 200e6]]);
    await model.measure();
    expect(model.state.memory.size).toBe(0);
  });

  it('measures again after it could not', async () => {
    const stream = new FakeStream();
    const measured = 'GET sessions?memory=true&no_track_activity=1';
    const [, model] = connected([stream.response], {
      [measured]: [json({ message: 'later' }, 503), json({ sessions: [session('s1', { memory_bytes: 1 })] })]
    });
    stream.send('reset', {}, 'b-1');
    await until(() => model.state.connection.status === 'live');
    await expect(model.measure()).rejects.toMatchObject({ status: 503 });
    await model.measure();
    expect(model.state.memory.get('s1')).toBe(1);
  });

  it('resumes where the connection was lost, without listing again', async () => {
    const first = new FakeStream();
    const second = new FakeStream();
    const [server, model] = connected([first.response, second.response]);
    first.send('reset', {}, 'b-1');
    first.send('session', { session: session('s2') }, 'b-2');
    await until(() => model.state.sessions.size === 2);
    first.fail();
    await until(() => model.state.connection.status === 'waiting');
    await until(() => model.state.connection.status === 'live');
    const asked = server.requests.filter(request => request.url.includes('/events'));
    expect(asked.map(request => request.headers.get('Last-Event-ID'))).toEqual([null, 'b-2']);
    expect(server.requests.filter(request => /sessions(\?|$)/.test(request.url))).toHaveLength(1);
  });

  it('lists earlier executions page by page, each page once', async () => {
    const stream = new FakeStream();
    const page = (from: number, count: number): ReturnType<typeof execution>[] =>
      Array.from({ length: count }, (_, n) =>
        execution(`e${from + n}`, { created_at: new Date(Date.UTC(2026, 0, 1, 0, from + n)).toISOString() })
      );
    const [server, model] = connected([stream.response], {
      'GET sessions/s1/executions?limit=50': json({ executions: page(60, 50) }),
      'GET sessions/s1/executions?limit=50&before=e60': json({ executions: page(10, 50) }),
      'GET sessions/s1/executions?limit=50&before=e10': json({ executions: page(0, 10) })
    });
    stream.send('reset', {}, 'b-1');
    await until(() => model.state.connection.status === 'live');
    model.watch('s1');
    await until(() => model.state.executions.has('s1'));
    await Promise.all([model.earlier('s1'), model.earlier('s1')]);
    expect(model.state.executions.get('s1')).toHaveLength(100);
    expect(model.state.whole.has('s1')).toBe(false);
    await model.earlier('s1');
    expect(model.state.executions.get('s1')?.map(each => each.id)).toEqual(
      Array.from({ length: 110 }, (_, n) => `e${109 - n}`)
    );
    expect(model.state.whole.has('s1')).toBe(true);
    await model.earlier('s1');
    expect(server.requests.filter(each => each.url.includes('before='))).toHaveLength(2);
  });

  it('lists again after a restart of the server, with the executions that are looked at', async () => {
    const first = new FakeStream();
    const second = new FakeStream();
    const [, model] = connected([first.response, second.response], {
      'GET sessions/s1/executions?limit=50': [
        json({ executions: [execution('e', { state: 'running' })] }),
        json({ executions: [execution('e', { state: 'server_restarted' })] })
      ]
    });
    first.send('reset', {}, 'b-1');
    await until(() => model.state.connection.status === 'live');
    const stop = model.watch('s1');
    await until(() => model.state.executions.has('s1'));
    first.end();
    second.send('reset', {}, 'c-1');
    await until(() => model.state.executions.get('s1')?.[0]?.state === 'server_restarted');
    stop();
    expect(model.state.executions.has('s1')).toBe(false);
  });

  it('keeps what it lists while any of several looks', async () => {
    const stream = new FakeStream();
    const [, model] = connected([stream.response], {
      'GET sessions/s1/executions?limit=50': json({ executions: [execution('e')] })
    });
    const [one, other] = [model.watch('s1'), model.watch('s1')];
    await until(() => model.state.executions.has('s1'));
    one();
    one();
    expect(model.state.executions.has('s1')).toBe(true);
    other();
    expect(model.state.executions.has('s1')).toBe(false);
  });

  it('says that the server has no extension', async () => {
    const [, model] = connected([new Response('404', { status: 404 })]);
    await until(() => model.state.connection.status === 'waiting');
    expect(model.state.connection).toMatchObject({ trouble: 'no-extension' });
  });

  it('says that it may not, and tries at once when asked to', async () => {
    const stream = new FakeStream();
    const [, model] = connected([json({ message: 'Forbidden' }, 403), stream.response]);
    await until(() => model.state.connection.status === 'waiting');
    expect(model.state.connection).toMatchObject({ trouble: 'forbidden', message: 'Forbidden' });
    model.retry();
    stream.send('reset', {}, 'b-1');
    await until(() => model.state.connection.status === 'live');
  });

  it('waits long for a server whose policies have a mistake, and says what it says', async () => {
    const refusal = json({ message: 'unknown field', code: 'policies_invalid' }, 503);
    const pauses = vi.spyOn(window, 'setTimeout');
    const [, model] = connected([refusal]);
    vi.spyOn(Math, 'random').mockReturnValue(0.5);
    await until(() => model.state.connection.status === 'waiting');
    expect(model.state.connection).toMatchObject({ trouble: 'policies', message: 'unknown field' });
    expect(pauses.mock.calls.map(([, wait]) => wait)).toContain(45_000);
  });

  it('takes a burst of events for one change', async () => {
    const stream = new FakeStream();
    const [, model] = connected([stream.response]);
    stream.send('reset', {}, 'b-0');
    await until(() => model.state.connection.status === 'live');
    let changes = 0;
    model.changed.connect(() => (changes += 1), undefined);
    const timers = vi.spyOn(window, 'setTimeout');
    for (let n = 1; n <= 200; n += 1) {
      stream.send('session', { session: session(`x${n}`) }, `b-${n}`);
    }
    await until(() => model.state.sessions.size === 201 && changes > 0);
    // Each change to come has its timer by now.
    const coming = timers.mock.calls.filter(([, delay]) => delay === 50).length;
    expect(coming).toBeLessThan(10);
    expect(changes).toBeLessThan(10);
  });

  it('lists what has ended on request', async () => {
    const stream = new FakeStream();
    const [, model] = connected([stream.response], {
      'GET sessions?ended=true': json({ sessions: [session('s1'), session('old', { state: 'ended' })] })
    });
    stream.send('reset', {}, 'b-0');
    await until(() => model.state.connection.status === 'live');
    await model.listEnded(true);
    expect(model.state.sessions.get('old')?.state).toBe('ended');
  });

  it('lists what has ended also if that is asked for while it lists the rest', async () => {
    const stream = new FakeStream();
    const late = new Late();
    const [, model] = connected([stream.response], {
      'GET sessions': late.answer,
      'GET sessions?ended=true': json({ sessions: [session('old', { state: 'ended' })] })
    });
    stream.send('reset', {}, 'b-0');
    await until(() => late.asked);
    await model.listEnded(true);
    late.send(json({ sessions: [] }));
    await until(() => model.state.connection.status === 'live');
    expect([...model.state.sessions.keys()]).toEqual(['old']);
  });

  it('believes the feed rather than an answer that has been on its way for longer', async () => {
    const stream = new FakeStream();
    const [executions, sessions] = [new Late(), new Late()];
    const [, model] = connected([stream.response], {
      'GET sessions/s1/executions?limit=50': executions.answer,
      'GET sessions?ended=true': sessions.answer
    });
    stream.send('reset', {}, 'b-0');
    await until(() => model.state.connection.status === 'live');
    model.watch('s1');
    const listed = model.listEnded(true);
    await until(() => executions.asked && sessions.asked);
    stream.send('execution', { execution: execution('e', { state: 'ok' }) }, 'b-1');
    stream.send('session', { session: session('s1', { state: 'ended' }) }, 'b-2');
    await until(() => model.state.sessions.get('s1')?.state === 'ended');
    executions.send(json({ executions: [execution('e', { state: 'running' })] }));
    await until(() => model.state.executions.has('s1'));
    sessions.send(json({ sessions: [session('s1', { state: 'busy' })] }));
    await until(() => model.state.withEnded);
    expect(model.state.executions.get('s1')?.[0]?.state).toBe('ok');
    expect(model.state.open.size).toBe(0);
    expect(model.state.sessions.get('s1')?.state).toBe('ended');
    await until(() => executions.asked);
    executions.send(json({ executions: [] }));
    await listed;
  });

  it('takes a failure of the feed for one, and connects again where it was', async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const [server, model] = connected([first.response, second.response]);
    const told: string[] = [];
    model.fed.connect((_, event) => told.push(event.type));
    first.send('reset', {}, 'b-0');
    await until(() => model.state.connection.status === 'live');
    first.write('event: failure\ndata: {"message": "the server failed"}\n\n');
    await until(() => model.state.connection.status === 'waiting');
    expect(model.state.connection).toMatchObject({ message: 'the server failed' });
    await until(() => model.state.connection.status === 'live');
    expect(told).toEqual(['reset']);
    expect(server.requests[server.requests.length - 1]?.headers.get('Last-Event-ID')).toBe('b-0');
  });

  it('asks less and less often where each connection is taken and cut', async () => {
    const streams = [1, 2, 3, 4].map(() => new FakeStream());
    const [, model] = connected(streams.map(each => each.response));
    streams[0]?.send('reset', {}, 'b-0');
    for (const [n, stream] of streams.entries()) {
      await until(() => model.state.connection.status === 'live');
      stream.fail();
      await until(() => model.state.connection.status === 'waiting');
      expect(model.state.connection).toMatchObject({ attempt: n + 1 });
    }
  });

  it('asks at once again after a connection that has lasted', async () => {
    const streams = [1, 2, 3].map(() => new FakeStream());
    const [, model] = connected(streams.map(each => each.response));
    streams[0]?.send('reset', {}, 'b-0');
    await until(() => model.state.connection.status === 'live');
    streams[0]?.fail();
    await until(() => model.state.connection.status === 'waiting');
    await until(() => model.state.connection.status === 'live');
    const now = performance.now();
    const clock = vi.spyOn(performance, 'now').mockReturnValue(now + 60_000);
    streams[1]?.fail();
    await until(() => model.state.connection.status === 'waiting');
    clock.mockRestore();
    expect(model.state.connection).toMatchObject({ attempt: 1 });
  });

  it('does not let a person wait who comes back to the page, nor one whose network is back', async () => {
    const streams = [1, 2, 3].map(() => new FakeStream());
    const [, model] = connected(streams.map(each => each.response));
    streams[0]?.send('reset', {}, 'b-0');
    vi.spyOn(Math, 'random').mockReturnValue(1000); // for minutes
    for (const [n, event] of ['focus', 'online'].entries()) {
      await until(() => model.state.connection.status === 'live');
      streams[n]?.fail();
      await until(() => model.state.connection.status === 'waiting');
      window.dispatchEvent(new Event(event));
    }
    await until(() => model.state.connection.status === 'live');
    vi.restoreAllMocks();
  });

  it('does not take a connection that was given up for one that lives', async () => {
    const [first, second] = [new FakeStream(), new FakeStream()];
    const late = new Late();
    const [, model] = connected([first.response, second.response], { 'GET sessions': late.answer });
    first.send('reset', {}, 'b-0');
    await until(() => late.asked);
    model.retry();
    late.send(json({ sessions: [] }));
    await until(() => model.state.info !== null);
    await new Promise(resolve => setTimeout(resolve));
    expect(model.state.connection.status).toBe('connecting');
  });
});

describe('delaySeconds', () => {
  it('doubles up to four seconds, and never by less than half', () => {
    expect([1, 2, 3, 4, 5, 200].map(attempt => delaySeconds(attempt, 1))).toEqual([0.5, 1, 2, 4, 4, 4]);
    expect([1, 200].map(attempt => delaySeconds(attempt, 0))).toEqual([0.25, 2]);
  });

  it('grows to half a minute after ten minutes without the server', () => {
    expect([0, 1].map(random => delaySeconds(201, random))).toEqual([15, 30]);
  });

  it('is half a minute to a minute where only a restart helps', () => {
    expect([0, 1].map(restartDelaySeconds)).toEqual([30, 60]);
  });
});
