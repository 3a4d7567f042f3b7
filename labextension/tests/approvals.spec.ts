import { Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Title, Widget } from '@lumino/widgets';
import { afterEach, describe, expect, it } from 'vitest';

import type { IApproval, IExecution } from '../src/api/types';
import { text } from '../src/commands/args';
import { showWaiting } from '../src/approvals/badge';
import { isEdited, kindsOf, NO_ENTRIES, synced, withEntry } from '../src/approvals/entries';
import { notifyOfWaiting } from '../src/approvals/notifier';
import { ApprovalQueue } from '../src/approvals/queue';
import { seenCode } from '../src/approvals/seen';
import { goneWords, leftWords, ruleWords } from '../src/approvals/approvalWords';
import { ExecModel } from '../src/model/model';
import { execution, FakeServer, FakeStream, INFO, json, session, token, until } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');

const APPROVAL: IApproval = {
  why: 'it imports os',
  expires_at: '2026-01-01T01:00:00Z',
  decision: null,
  decided_by: '',
  decided_at: null,
  reason: '',
  original_code: null,
  findings: [],
  approved_kinds: []
};

function waits(id: string, changes: Partial<IExecution> = {}): IExecution {
  return execution(id, { state: 'awaiting_approval', approval: APPROVAL, ...changes });
}

function decided(id: string, decision: IApproval['decision'], by = 'Bea'): IExecution {
  return execution(id, { state: 'ok', approval: { ...APPROVAL, decision, decided_by: by } });
}

const models: ExecModel[] = [];

afterEach(() => {
  models.splice(0).forEach(model => model.dispose());
  Notification.dismiss();
});

/** A model that is fed by a stream, and a server with these answers besides. */
async function live(
  approvals: readonly IExecution[],
  answers: ConstructorParameters<typeof FakeServer>[0] = {}
): Promise<{ server: FakeServer; stream: FakeStream; model: ExecModel }> {
  const stream = new FakeStream();
  const server = new FakeServer({
    'GET events': stream.response,
    'GET ': json(INFO),
    'GET sessions': json({ sessions: [session('s1', { owner: 'token:t' })] }),
    'GET tokens': json({ tokens: [token('t', { name: 'report agent' })] }),
    'GET approvals': json({ executions: approvals }),
    'GET grants': json({ grants: [] }),
    ...answers
  });
  const model = new ExecModel(server.client);
  models.push(model);
  stream.send('reset', {}, 'b-0');
  await until(() => model.state.connection.status === 'live' && model.state.info !== null);
  return { server, stream, model };
}

/** What was posted last. */
async function sent(server: FakeServer): Promise<unknown> {
  const posts = server.requests.filter(request => request.method === 'POST');
  return posts[posts.length - 1]?.clone().json();
}

describe('synced', () => {
  const none = new Set<string>();

  it('lists what waits, the oldest first', () => {
    const late = waits('a', { created_at: '2026-01-02T00:00:00Z' });
    expect([...synced(NO_ENTRIES, [late, waits('b')], none).keys()]).toEqual(['b', 'a']);
  });

  it('is the same where nothing has changed', () => {
    const waiting = [waits('a'), waits('b')];
    const entries = synced(NO_ENTRIES, waiting, none);
    expect(synced(entries, waiting, none)).toBe(entries);
  });

  it('forgets what waits no more, unless something was typed about it', () => {
    let entries = synced(NO_ENTRIES, [waits('a'), waits('b'), waits('c')], none);
    entries = withEntry(entries, 'b', { original: 'x', draft: 'y' });
    entries = withEntry(entries, 'c', { note: 'because' });
    entries = synced(entries, [], none);
    expect([...entries.values()].map(each => [each.execution.id, each.gone])).toEqual([
      ['b', true],
      ['c', true]
    ]);
    expect(synced(entries, [], none)).toBe(entries);
  });

  it('leaves what is being decided, and what is known to be decided', () => {
    const entries = withEntry(synced(NO_ENTRIES, [waits('a')], none), 'a', { sending: true });
    expect(synced(entries, [], none)).toBe(entries);
    expect(synced(NO_ENTRIES, [waits('a')], new Set(['a'])).size).toBe(0);
  });

  it('keeps what is typed while others come', () => {
    const first = waits('a');
    let entries = withEntry(synced(NO_ENTRIES, [first], none), 'a', { original: 'x', draft: 'y', note: 'n' });
    entries = synced(entries, [first, waits('0')], none);
    expect(entries.get('a')).toMatchObject({ draft: 'y', note: 'n', gone: false });
  });
});

describe('kindsOf', () => {
  it('has each kind once, and none that cannot be approved or is approved with the code', () => {
    const kinds = ['shell', '', 'shell', 'new import a', 'import b'];
    const findings = kinds.map(kind => ({ kind, why: 'it does', line: 1 }));
    const entry = synced(NO_ENTRIES, [waits('a', { approval: { ...APPROVAL, findings } })], new Set()).get(
      'a'
    );
    expect(entry && kindsOf(entry)).toEqual(['shell', 'import b']);
  });
});

describe('isEdited', () => {
  it('does not take other line ends for an edit', () => {
    const entry = synced(NO_ENTRIES, [waits('a')], new Set()).get('a');
    expect(entry && isEdited({ ...entry, original: 'a\r\nb', draft: 'a\nb' })).toBe(false);
    expect(entry && isEdited({ ...entry, original: 'a\r\nb', draft: 'a\nc' })).toBe(true);
    expect(entry && isEdited({ ...entry, original: 'a', draft: null })).toBe(false);
  });
});

describe('ApprovalQueue', () => {
  const whole = { 'GET executions/e': json(waits('e', { code: 'print(1)\nprint(2)' })) };

  async function queueOf(answers: ConstructorParameters<typeof FakeServer>[0] = whole): Promise<{
    server: FakeServer;
    stream: FakeStream;
    queue: ApprovalQueue;
  }> {
    const { server, stream, model } = await live([waits('e', { code: 'print(1)' })], answers);
    const queue = new ApprovalQueue(model);
    await until(() => queue.entries.get('e')?.original !== null || queue.entries.get('e')?.problem !== null);
    return { server, stream, queue };
  }

  it('opens what waits alone, with all of its code', async () => {
    const { queue } = await queueOf();
    expect(queue.entries.get('e')).toMatchObject({ open: true, original: 'print(1)\nprint(2)' });
  });

  it('approves what was sent without sending it back', async () => {
    const { server, queue } = await queueOf({ ...whole, 'POST approvals/e': json(execution('e')) });
    queue.edit('e', 'print(1)\nprint(2)');
    expect(await queue.decide('e', true)).toBe('approved');
    expect(await sent(server)).toEqual({ decision: 'approve', reason: '' });
    expect(queue.entries.size).toBe(0);
  });

  it('approves what was edited, with a note', async () => {
    const { server, queue } = await queueOf({ ...whole, 'POST approvals/e': json(execution('e')) });
    queue.edit('e', 'print(3)');
    queue.note('e', ' why not ');
    expect(await queue.decide('e', true)).toBe('edited');
    expect(await sent(server)).toEqual({ decision: 'approve', code: 'print(3)', reason: 'why not' });
  });

  it('approves kinds for the session where a person wants that', async () => {
    const { server, queue } = await queueOf({ ...whole, 'POST approvals/e': json(execution('e')) });
    queue.allowForSession('e', true);
    await queue.decide('e', true);
    expect(await sent(server)).toEqual({ decision: 'approve', reason: '', for_session: true });
  });

  it('rejects without the code that was edited', async () => {
    const { server, queue } = await queueOf({ ...whole, 'POST approvals/e': json(execution('e')) });
    queue.edit('e', 'print(3)');
    queue.note('e', 'no');
    expect(await queue.decide('e', false)).toBe('rejected');
    expect(await sent(server)).toEqual({ decision: 'reject', reason: 'no' });
  });

  it('does not bring back what it has decided, before the feed knows', async () => {
    const { stream, queue } = await queueOf({ ...whole, 'POST approvals/e': json(execution('e')) });
    await queue.decide('e', true);
    let changes = 0;
    queue.changed.connect(() => (changes += 1), undefined);
    stream.send('execution', { execution: waits('other') }, 'b-1');
    await until(() => changes > 0);
    expect([...queue.entries.keys()]).toEqual(['other']);
  });

  it('says who was quicker, and keeps what was typed', async () => {
    const refusal = json({ code: 'not_awaiting_approval', message: 'it does not wait' }, 409);
    const { queue } = await queueOf({
      'GET executions/e': [whole['GET executions/e'], json(decided('e', 'rejected'))],
      'POST approvals/e': refusal
    });
    queue.edit('e', 'print(3)');
    expect(await queue.decide('e', true)).toBe('failed');
    const entry = queue.entries.get('e');
    expect(entry).toMatchObject({ gone: true, draft: 'print(3)', problem: null });
    expect(entry && goneWords(trans, entry.execution)).toBe('Bea has rejected it already.');
    queue.dismiss('e');
    expect(queue.entries.size).toBe(0);
  });

  it('goes on with what still waits after a refusal', async () => {
    const { queue } = await queueOf({
      ...whole,
      'POST approvals/e': json({ code: 'not_awaiting_approval', message: 'somebody decides' }, 409)
    });
    expect(await queue.decide('e', true)).toBe('failed');
    expect(queue.entries.get('e')).toMatchObject({
      gone: false,
      sending: false,
      problem: 'somebody decides'
    });
  });

  it('says that it is no more', async () => {
    const gone = json({ code: 'execution_not_found', message: "no execution 'e'" }, 404);
    const { queue } = await queueOf({
      'GET executions/e': [whole['GET executions/e'], gone],
      'POST approvals/e': gone
    });
    await queue.decide('e', false);
    expect(queue.entries.get('e')).toMatchObject({ gone: true, problem: "no execution 'e'" });
  });

  it('can be tried again after an error', async () => {
    const { queue } = await queueOf({
      ...whole,
      'POST approvals/e': [
        json({ message: 'the disk is full', code: 'storage_full' }, 507),
        json(execution('e'))
      ]
    });
    expect(await queue.decide('e', true)).toBe('failed');
    expect(queue.entries.get('e')).toMatchObject({ problem: 'the disk is full', gone: false });
    expect(await queue.decide('e', true)).toBe('approved');
  });

  it('approves nothing that could not be read', async () => {
    const { server, queue } = await queueOf({
      'GET executions/e': json({ message: 'later', code: 'unavailable' }, 503),
      'POST approvals/e': json(execution('e'))
    });
    expect(queue.entries.get('e')).toMatchObject({ original: null, problem: 'later' });
    expect(await queue.decide('e', true)).toBe('failed');
    expect(await sent(server)).toBeUndefined();
    expect(await queue.decide('e', false)).toBe('rejected');
  });

  it('drops what somebody else has decided', async () => {
    const { stream, queue } = await queueOf();
    stream.send('execution', { execution: decided('e', 'approved') }, 'b-1');
    await until(() => queue.entries.size === 0);
  });

  it('keeps what was typed about what somebody else has decided', async () => {
    const { stream, queue } = await queueOf();
    queue.note('e', 'because');
    stream.send('execution', { execution: decided('e', 'approved') }, 'b-1');
    await until(() => queue.entries.get('e')?.gone === true);
    const entry = queue.entries.get('e');
    expect(entry && goneWords(trans, entry.execution)).toBe('Bea has approved it already.');
  });
});

describe('notifyOfWaiting', () => {
  function notifier(model: ExecModel): { ran: string[] } {
    const commands = new CommandRegistry();
    const ran: string[] = [];
    for (const id of ['review-approval', 'reject-execution', 'answer-input'].map(
      name => `jupyter-exec-ext:${name}`
    )) {
      commands.addCommand(id, {
        describedBy: { args: null },
        execute: args => ran.push(`${id} ${text(args, id.endsWith('input') ? 'sessionId' : 'executionId')}`)
      });
    }
    notifyOfWaiting(model, commands, trans);
    return { ran };
  }

  it('tells of what waits, once, with what can be done', async () => {
    const { stream, model } = await live([]);
    const { ran } = notifier(model);
    stream.send('execution', { execution: waits('e') }, 'b-1');
    await until(() => Notification.manager.count === 1);
    const [only] = Notification.manager.notifications;
    expect(only?.message).toBe('Code of “report agent” waits for your approval: it imports os.');
    only?.options.actions?.forEach(action => action.callback(new MouseEvent('click')));
    expect(ran).toEqual(['jupyter-exec-ext:review-approval e', 'jupyter-exec-ext:reject-execution e']);
  });

  it('tells of code that asks for input, and takes it back with the answer', async () => {
    const { stream, model } = await live([]);
    const { ran } = notifier(model);
    const asking = session('s1', { owner: 'token:t', state: 'busy', waits_for: 'input' });
    stream.send('session', { session: asking }, 'b-1');
    await until(() => Notification.manager.count === 1);
    const [only] = Notification.manager.notifications;
    expect(only?.message).toBe('Code in the session “s1” waits for your input.');
    only?.options.actions?.forEach(action => action.callback(new MouseEvent('click')));
    expect(ran).toEqual(['jupyter-exec-ext:answer-input s1']);
    stream.send('session', { session: { ...asking, waits_for: null } }, 'b-2');
    await until(() => Notification.manager.count === 0);
  });

  it('takes it back when somebody has decided', async () => {
    const { stream, model } = await live([waits('e')]);
    notifier(model);
    await until(() => Notification.manager.count === 1);
    stream.send('execution', { execution: decided('e', 'rejected') }, 'b-1');
    await until(() => Notification.manager.count === 0);
  });

  it('tells nothing of code that is on the screen, and takes back what it told', async () => {
    const { stream, model } = await live([waits('seen at once')]);
    seenCode.add('seen at once');
    notifier(model);
    stream.send('execution', { execution: waits('seen later') }, 'b-1');
    await until(() => Notification.manager.count === 1);
    expect(Notification.manager.notifications[0]?.message).toMatch(/^Code of/);
    seenCode.add('seen later');
    await until(() => Notification.manager.count === 0);
  });

  it('is one for all', async () => {
    const { stream, model } = await live([waits('e')]);
    notifier(model);
    await until(() => Notification.manager.count === 1);
    stream.send('execution', { execution: waits('f') }, 'b-1');
    await until(() => Notification.manager.notifications[0]?.message.startsWith('2 runs need') === true);
    expect(Notification.manager.count).toBe(1);
    stream.send('execution', { execution: decided('e', 'rejected') }, 'b-2');
    await until(() => Notification.manager.notifications[0]?.message.startsWith('Code of') === true);
    expect(Notification.manager.count).toBe(1);
  });

  it('does not come again once it was closed, until more waits', async () => {
    const { stream, model } = await live([waits('e'), waits('f')]);
    notifier(model);
    Notification.dismiss();
    stream.send('execution', { execution: decided('e', 'rejected') }, 'b-1');
    await until(() => model.state.open.size === 1);
    await new Promise(resolve => model.changed.connect(() => resolve(undefined)));
    expect(Notification.manager.count).toBe(0);
    stream.send('execution', { execution: waits('g') }, 'b-2');
    await until(() => Notification.manager.count === 1);
  });
});

describe('showWaiting', () => {
  it('shows on the tab how many wait, and nothing else of it changes', async () => {
    const { stream, model } = await live([waits('e')]);
    const title = new Title<Widget>({ owner: new Widget(), dataset: { id: 'x' } });
    title.caption = trans.__('Agents');
    showWaiting(title, model, trans);
    expect(title.dataset).toEqual({ id: 'x', 'jex-waiting': '1' });
    expect(title.caption).toBe('Agents (one run needs your approval)');
    stream.send('execution', { execution: decided('e', 'approved') }, 'b-1');
    await until(() => title.caption === 'Agents');
    expect(title.dataset).toEqual({ id: 'x' });
  });
});

describe('words', () => {
  it('say what a policy asks about', () => {
    expect(ruleWords(trans, undefined)).toBe('');
    expect(ruleWords(trans, 'never')).toBe('');
    expect(ruleWords(trans, { when: 'always', timeout_seconds: 1 })).toBe('everything');
    expect(ruleWords(trans, { when: ['shell', 'imports'], modules: ['os'] })).toBe('shell, imports (os)');
  });

  it('say how much time is left', () => {
    const now = Date.parse('2026-01-01T00:00:00Z');
    const left = (iso: string): string => leftWords(trans, iso, now);
    expect(left('2026-01-01T00:00:59Z')).toBe('less than a minute');
    expect(left('2026-01-01T00:10:30Z')).toBe('10 min');
    expect(left('2026-01-01T05:10:30Z')).toBe('5 h 10 min');
    expect(left('2026-01-09T05:10:30Z')).toBe('8 d');
    expect(left('2025-01-01T00:00:00Z')).toBe('less than a minute');
  });

  it('say why something no longer waits', () => {
    expect(goneWords(trans, decided('e', 'edited'))).toBe('Bea has approved it already, with other code.');
    expect(goneWords(trans, decided('e', 'timeout'))).toBe(
      'The time for a decision ran out. The code did not run.'
    );
    expect(goneWords(trans, execution('e', { state: 'cancelled', approval: APPROVAL }))).toBe(
      'It no longer waits for approval: cancelled.'
    );
    expect(goneWords(trans, waits('e'))).toBe('It no longer waits for approval.');
  });
});
