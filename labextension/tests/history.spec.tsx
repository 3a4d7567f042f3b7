import { Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { FeedEvent, ICheckpoint, IRestore, ISession } from '../src/api/types';
import { addCheckpointCommands } from '../src/commands/checkpoints';
import { attempt, type ICommandContext } from '../src/commands/context';
import { canBranch, canCheckpoint, changesCheckpoints, historyOf, HistoryTree } from '../src/model/history';
import { EMPTY, type IExecState } from '../src/model/state';
import { History } from '../src/panel/history';
import { afterWords, checkpointName } from '../src/panel/historyWords';
import { type IServices, ServicesContext } from '../src/panel/services';
import { type Answer, execution, FakeServer, INFO, json, Late, session, until } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');
const ALLOWED = {
  ...INFO,
  caller: { ...INFO.caller, scopes: ['sessions:read', 'sessions:create', 'sessions:checkpoint'] },
  limits: { max_checkpoints: 20 }
};
const LIST = 'GET sessions/s1/checkpoints?no_track_activity=1';

function checkpoint(id: string, changes: Partial<ICheckpoint> = {}): ICheckpoint {
  return {
    id,
    session_id: 's1',
    name: `name of ${id}`,
    created_at: '2026-01-01T00:00:02Z',
    automatic: false,
    after: null,
    files: true,
    lost: [],
    memory_bytes: null,
    ...changes
  };
}

function restores(...pairs: [string | null, string | null][]): IRestore[] {
  return pairs.map(([after, before]) => ({ checkpoint: 'c', at: '2026-01-01T00:00:03Z', after, before }));
}

/** Executions by letters, the oldest first, as the state has them. */
function runs(letters: string) {
  return [...letters]
    .reverse()
    .map(id => execution(id, { code: `run ${id}`, started_at: '2026-01-01T00:00:01Z' }));
}

function open(changes: Partial<ISession> = {}): ISession {
  return session('s1', { isolation: 'none', name: 'work', ...changes });
}

/** A page with a session, and a server that answers. */
class FakePage {
  readonly commands = new CommandRegistry();
  readonly model;
  readonly server: FakeServer;

  constructor(
    readonly session: ISession,
    answers: { [methodAndPath: string]: Answer | Answer[] },
    state: Partial<IExecState> = {}
  ) {
    this.server = new FakeServer(answers);
    this.model = new FakeModel(this.server, {
      ...EMPTY,
      info: ALLOWED,
      sessions: new Map([[session.id, session]]),
      ...state
    });
    const context = { commands: this.commands, model: this.model, trans, attempt };
    addCheckpointCommands(context as unknown as ICommandContext);
  }

  get asked(): string[] {
    return this.server.requests.map(
      ({ method, url }) => `${method} ${url.replace(/^.*exec\/v1\//, '').replace(/[?&].*$/, '')}`
    );
  }

  show(): HTMLElement {
    const { commands, model } = this;
    const widget = ReactWidget.create(
      <ServicesContext.Provider value={{ trans, commands, model } as unknown as IServices}>
        <History session={this.session} within="session s1" />
      </ServicesContext.Provider>
    );
    Widget.attach(widget, document.body);
    return widget.node;
  }

  async body(index: number): Promise<unknown> {
    return this.server.requests[index]?.json();
  }
}

class FakeModel {
  readonly changed = new Signal<this, void>(this);
  readonly fed = new Signal<this, FeedEvent>(this);
  readonly client;

  constructor(
    server: FakeServer,
    readonly state: IExecState
  ) {
    this.client = server.client;
  }
}

const dialog = (): HTMLElement | null => document.querySelector('.jp-Dialog');

async function answer(label: string): Promise<void> {
  await until(() => dialog() !== null);
  const buttons = [...document.querySelectorAll<HTMLElement>('.jp-Dialog button')];
  buttons.find(each => each.textContent === label)?.click();
  await until(() => dialog() === null);
}

beforeEach(() => {
  vi.stubGlobal(
    'IntersectionObserver',
    class {
      observe(): void {
        // Nothing is on the screen.
      }
      disconnect(): void {
        // Nothing is observed.
      }
    }
  );
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  document.body.replaceChildren();
});

describe('HistoryTree', () => {
  const line = (letters: string, ...pairs: [string | null, string | null][]): string => {
    const tree = new HistoryTree(runs(letters), restores(...pairs));
    return [...letters].filter(id => tree.isOnLine(id)).join('');
  };

  it('leaves out what ran between a checkpoint and a restore to it', () => {
    expect(line('abc')).toBe('abc');
    expect(line('abcd', ['a', 'c'])).toBe('ad');
    expect(line('abcd', [null, 'b'])).toBe('cd');
    expect(line('abcde', ['b', 'c'], ['a', 'd'])).toBe('ae');
  });

  it('follows restores to a line that was left', () => {
    expect(line('abc', ['a', 'b'], ['b', 'c'])).toBe('ab');
    expect(line('abcd', ['a', 'b'], ['b', 'a'], ['b', 'c'])).toBe('abd');
  });

  it('goes without the oldest executions', () => {
    expect(line('cde', ['a', 'b'], ['c', 'd'])).toBe('ce');
    expect(new HistoryTree(runs('cd'), []).isOnLine('a')).toBe(true);
  });

  it('says what a restore would leave, also to another line', () => {
    const tree = new HistoryTree(runs('abc'), restores(['a', 'b']));
    expect([...tree.leftBy(checkpoint('k', { after: 'b' }))]).toEqual(['c']);
    expect([...tree.leftBy(checkpoint('k', { after: 'c' }))]).toEqual([]);
    expect([...tree.leftBy(checkpoint('k'))].sort()).toEqual(['a', 'c']);
  });
});

describe('history of a session', () => {
  it('is possible where the caller, the server and the kernel allow it', () => {
    expect(canCheckpoint(ALLOWED, open())).toBe(true);
    expect(canCheckpoint(ALLOWED, open({ isolation: 'sandbox' }))).toBe(true);
    expect(canCheckpoint(null, open())).toBe(false);
    expect(canCheckpoint(INFO, open())).toBe(false);
    expect(canCheckpoint({ ...ALLOWED, limits: { max_checkpoints: 0 } }, open())).toBe(false);
    for (const changes of [{ attached: true }, { state: 'ended' }, { isolation: 'landlock' }] as const) {
      expect(canCheckpoint(ALLOWED, open(changes))).toBe(false);
    }
  });

  it('has branches only without a sandbox, and if the caller can create sessions', () => {
    expect(canBranch(ALLOWED, open())).toBe(true);
    expect(canBranch(ALLOWED, open({ isolation: 'sandbox' }))).toBe(false);
    const scopes = ['sessions:checkpoint'];
    expect(canBranch({ ...ALLOWED, caller: { ...ALLOWED.caller, scopes } }, open())).toBe(false);
  });

  it('has checkpoints, restores and branches, the newest first', () => {
    const branch = session('s2', { branch_of: 's1', created_at: '2026-01-01T00:00:04Z' });
    const of = open({ restores: restores(['a', 'b']) });
    const entries = historyOf(of, [checkpoint('k')], [of, branch, session('s3')]);
    expect(entries.map(each => each.type)).toEqual(['branch', 'restore', 'checkpoint']);
  });

  it('changes with events of its own session', () => {
    const event = { session_id: 's1', checkpoint_id: 'k' };
    expect(changesCheckpoints({ type: 'checkpointed', checkpointed: event }, 's1')).toBe(true);
    expect(changesCheckpoints({ type: 'checkpoint_deleted', checkpoint_deleted: event }, 's1')).toBe(true);
    expect(changesCheckpoints({ type: 'restored', restored: event }, 's2')).toBe(false);
    expect(changesCheckpoints({ type: 'reset' }, 's2')).toBe(true);
  });

  it('names the run before a checkpoint', () => {
    const listed = [execution('a', { execution_count: 7 })];
    expect(afterWords(trans, 'a', listed)).toBe('after [7]');
    expect(afterWords(trans, 'b', listed)).toBe('after an earlier run');
    expect(checkpointName(trans, checkpoint('k', { name: '' }))).toBe('k');
    const automatic = checkpoint('k', { name: 'before exe_1', automatic: true });
    expect(checkpointName(trans, automatic)).toMatch(/^Automatic, .*:02/);
    expect(afterWords(trans, null, listed)).toBe('before the first run');
  });
});

describe('History', () => {
  it('asks nothing without the scope, and shows restores all the same', async () => {
    const page = new FakePage(open({ restores: restores(['a', 'b']) }), {}, { info: INFO });
    const node = page.show();
    await until(() => node.querySelector('.jex-History-event') !== null);
    expect(node.textContent).toContain('restored to the state after an earlier run');
    expect(node.textContent).not.toContain('Make Checkpoint');
    expect(page.asked).toEqual([]);
  });

  it('shows checkpoints with what is missing in them, and marks those of another line', async () => {
    const lost = [{ kind: 'thread', name: 'worker\u202e' }];
    const found = [
      checkpoint('k', { after: 'a', memory_bytes: 1500 }),
      checkpoint('l', { after: 'b', lost, created_at: '2026-01-01T00:00:03Z' })
    ];
    const of = open({ restores: restores(['a', 'b']) });
    const executions = new Map([['s1', runs('ab')]]);
    const page = new FakePage(of, { [LIST]: json({ checkpoints: found }) }, { executions });
    const node = page.show();
    await until(() => node.querySelectorAll('.jex-Checkpoint').length === 2);
    const [newer, older] = [...node.querySelectorAll<HTMLElement>('.jex-Checkpoint')];
    expect(older?.textContent).toContain('after [1]1.5 kB');
    expect(older?.dataset.left).toBe('false');
    expect(newer?.dataset.left).toBe('true');
    expect(newer?.textContent).toContain('other line');
    expect(newer?.textContent).toContain('without one thing');
    newer?.querySelector<HTMLElement>('.jex-Row-main')?.click();
    await until(() => newer?.querySelector('.jex-Details') !== null);
    expect(newer?.querySelector('.jex-Details')?.textContent).toContain('Without thread: worker‹U+202E›');
    const labels = [...(newer?.querySelectorAll('.jex-Details button') ?? [])].map(each => each.ariaLabel);
    expect(labels).toEqual(['Restore to name of l', 'Branch from name of l', 'Delete name of l']);
  });

  it('says why a run has no automatic checkpoint', async () => {
    const of = open({ auto_checkpoint_problem: 'too many' });
    const node = new FakePage(of, {}, { info: INFO }).show();
    await until(() => node.querySelector('.jex-Warn') !== null);
    expect(node.textContent).toBe('The last run has no checkpoint: too many');
  });

  it('looks again after an event, once for many that come meanwhile', async () => {
    const late = new Late();
    const page = new FakePage(open(), { [LIST]: late.answer });
    const node = page.show();
    await until(() => late.asked);
    const event = { session_id: 's1', checkpoint_id: 'k' };
    page.model.fed.emit({ type: 'checkpointed', checkpointed: event });
    page.model.fed.emit({ type: 'restored', restored: event });
    page.model.fed.emit({ type: 'restored', restored: { ...event, session_id: 's2' } });
    expect(page.asked).toHaveLength(1);
    late.send(json({ checkpoints: [] }));
    await until(() => page.asked.length === 2 && late.asked);
    late.send(json({ checkpoints: [checkpoint('k')] }));
    await until(() => node.querySelector('.jex-Checkpoint') !== null);
    expect(page.asked).toHaveLength(2);
  });
});

describe('commands on checkpoints', () => {
  const POST = 'POST sessions/s1/checkpoints';
  const RESTORE = 'POST sessions/s1/restore';
  const args = { sessionId: 's1', checkpoint: 'k' };

  it('are hidden where the caller may not', () => {
    const page = new FakePage(open(), {}, { info: INFO });
    for (const id of page.commands.listCommands()) {
      expect(page.commands.isVisible(id, args)).toBe(false);
    }
    expect(page.commands.listCommands()).toHaveLength(4);
  });

  it('make a checkpoint with a name that is free', async () => {
    const found = [checkpoint('k', { name: 'Checkpoint 2' })];
    const page = new FakePage(open(), {
      [LIST]: json({ checkpoints: found }),
      [POST]: json(checkpoint('l'), 201)
    });
    const done = page.commands.execute('jupyter-exec-ext:checkpoint-session', args);
    await answer('Make Checkpoint');
    await done;
    expect(await page.body(1)).toEqual({ name: 'Checkpoint 3', force: false });
  });

  it('ask before a checkpoint is made without something', async () => {
    const message = 'the checkpoint cannot have all of the session: thread: worker';
    const refusal = json({ code: 'checkpoint_hindered', message }, 409);
    const page = new FakePage(open(), {
      [LIST]: json({ checkpoints: [] }),
      [POST]: [refusal, json(checkpoint('l'), 201)]
    });
    const done = page.commands.execute('jupyter-exec-ext:checkpoint-session', args);
    await answer('Make Checkpoint');
    await until(() => dialog()?.textContent?.includes('thread: worker') === true);
    await answer('Make Without Them');
    await done;
    expect(await page.body(2)).toEqual({ name: 'Checkpoint 1', force: true });
  });

  it('restore after a question that names the runs, and nothing if the answer is no', async () => {
    const found = { checkpoints: [checkpoint('k', { after: 'a' })] };
    const executions = new Map([['s1', runs('abc')]]);
    const answers = { [LIST]: json(found), [RESTORE]: json(open()) };
    const page = new FakePage(open(), answers, { executions });
    const refused = page.commands.execute('jupyter-exec-ext:restore-session', args);
    await until(() => dialog() !== null);
    expect([...document.querySelectorAll('.jp-Dialog li')].map(each => each.textContent)).toEqual([
      '[1] run c',
      '[1] run b'
    ]);
    await answer('Cancel');
    await refused;
    expect(page.asked).not.toContain(RESTORE);
    const agreed = page.commands.execute('jupyter-exec-ext:restore-session', args);
    await answer('Restore');
    await agreed;
    expect(await page.body(2)).toEqual({ checkpoint: 'k' });
  });

  it('restore without a question where no run is left', async () => {
    const found = { checkpoints: [checkpoint('k', { after: 'b' })] };
    const executions = new Map([['s1', runs('ab')]]);
    const page = new FakePage(open(), { [LIST]: json(found), [RESTORE]: json(open()) }, { executions });
    await page.commands.execute('jupyter-exec-ext:restore-session', args);
    expect(page.asked).toContain(RESTORE);
  });

  it('say why a session that runs code cannot be restored', async () => {
    const error = vi.spyOn(Notification, 'error').mockReturnValue('');
    const page = new FakePage(open({ state: 'busy' }), {});
    await page.commands.execute('jupyter-exec-ext:restore-session', args);
    expect(error.mock.calls[0]?.[0]).toContain('“work” runs code');
    expect(page.asked).toEqual([]);
  });

  it("show the server's refusal", async () => {
    const error = vi.spyOn(Notification, 'error').mockReturnValue('');
    const message = 'the session runs code; wait for its end';
    const page = new FakePage(
      open(),
      {
        [LIST]: json({ checkpoints: [checkpoint('k')] }),
        [RESTORE]: json({ code: 'conflict', message }, 409)
      },
      { executions: new Map([['s1', []]]) }
    );
    await page.commands.execute('jupyter-exec-ext:restore-session', args);
    expect(error.mock.calls[0]?.[0]).toBe(message);
  });

  it('branch from a checkpoint, or from the present state', async () => {
    const branches = json({ sessions: [session('s2', { name: 'work branch 1' })] }, 201);
    const success = vi.spyOn(Notification, 'success').mockReturnValue('');
    const page = new FakePage(open(), { 'POST sessions/s1/branches': branches });
    await page.commands.execute('jupyter-exec-ext:branch-session', args);
    await page.commands.execute('jupyter-exec-ext:branch-session', { sessionId: 's1' });
    expect(await page.body(0)).toEqual({ checkpoint: 'k' });
    expect(await page.body(1)).toEqual({ checkpoint: null });
    expect(success.mock.calls[0]?.[0]).toContain('work branch 1');
  });

  it('delete a checkpoint after a question', async () => {
    const remove = 'DELETE sessions/s1/checkpoints/k';
    const page = new FakePage(open(), {
      [LIST]: json({ checkpoints: [checkpoint('k')] }),
      [remove]: new Response(null, { status: 204 })
    });
    const done = page.commands.execute('jupyter-exec-ext:delete-checkpoint', args);
    await answer('Delete');
    await done;
    expect(page.asked).toContain(remove);
  });
});
