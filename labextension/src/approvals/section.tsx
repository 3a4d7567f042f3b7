/** The section of code that waits for a person. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { IPolicy } from '../api/types';
import { EXECUTION_ARGS, text } from '../commands/args';
import { CommandIDs } from '../commands/ids';
import { counts } from '../model/view';
import { NotConnected, useIsNotConnected } from '../panel/notConnected';
import { useRoving } from '../panel/roving';
import { type ISection, SectionWidget } from '../panel/section';
import { type IServices, useExecState, useNow, useServices } from '../panel/services';
import { expand, resize } from '../panel/expand';
import { waitingWords } from './badge';
import type { IEntry } from './entries';
import { EntryRow } from './entry';
import { ApprovalQueue } from './queue';
import { outcomeWords } from './approvalWords';

/** Shares of the panel's height, with and without code that waits. */
const FULL_SHARE = 0.65;
const EMPTY_SHARE = 0.2;

export const approvalsSection: ISection = {
  id: 'jupyter-exec-ext-approvals',
  title: trans => trans.__('Approvals'),
  // When the panel is made, the section is in no panel yet, and cannot be opened.
  collapsed: ({ model }) => counts(model.state).awaiting === 0,
  create
};

function create(services: IServices): SectionWidget {
  const { model, commands, trans } = services;
  const queue = new ApprovalQueue(model);
  const widget = new SectionWidget(approvalsSection, services, <Approvals queue={queue} />);

  let shown = 0;
  const update = (): void => {
    const waiting = [...queue.entries.values()].filter(entry => !entry.gone).length;
    widget.title.label = titleOf(trans, waiting);
    if (widget.hasClass('jex-Waiting') !== queue.entries.size > 0) {
      widget.toggleClass('jex-Waiting');
      widget.parent?.fit();
    }
    if (shown === 0 && waiting > 0) {
      expand(widget);
      resize(widget, FULL_SHARE);
    } else if (shown > 0 && queue.entries.size === 0) {
      resize(widget, EMPTY_SHARE);
    }
    shown = waiting;
  };
  queue.changed.connect(update);
  update();

  commands.addCommand(CommandIDs.review, {
    label: trans.__('Review Code That Waits for Approval'),
    describedBy: EXECUTION_ARGS,
    execute: async args => {
      await commands.execute(CommandIDs.open);
      expand(widget);
      queue.want(text(args, 'executionId'));
    }
  });
  return widget;
}

function titleOf(trans: TranslationBundle, waiting: number): string {
  const name = approvalsSection.title(trans);
  return waiting > 0 ? `${name} (${waiting})` : name;
}

function Approvals({ queue }: { queue: ApprovalQueue }): React.ReactElement {
  const { trans } = useServices();
  const entries = useEntries(queue);
  const policies = usePolicies();
  const isNotConnected = useIsNotConnected();
  const roving = useRoving();
  const [said, setSaid] = React.useState('');
  const now = useNow(15, entries.length > 0);
  const awaiting = entries.filter(entry => !entry.gone).length;

  React.useEffect(() => {
    const focus = (): void => {
      const id = queue.takeWanted();
      if (id !== null) {
        // The panel may just have been opened, and take its place in the next frame.
        window.requestAnimationFrame(() => {
          const rows = roving.ref.current?.querySelectorAll<HTMLElement>('[data-roving]') ?? [];
          [...rows].find(row => row.dataset.roving === `approval ${id}`)?.focus();
        });
      }
    };
    focus();
    queue.changed.connect(focus);
    return () => {
      queue.changed.disconnect(focus);
    };
  }, [queue, roving.ref]);

  const decide = React.useCallback(
    (id: string, approve: boolean): void => {
      setSaid('');
      void queue.decide(id, approve).then(outcome => {
        setSaid(outcomeWords(trans, outcome));
        if (outcome !== 'failed') {
          // The focused row is gone; continue with those that are left.
          roving.ref.current?.focus();
        }
      });
    },
    [queue, trans, roving.ref]
  );

  return (
    <div className="jex-Approvals">
      <p className="jex-Hidden" role="status">
        {[said, ...waitingWords(trans, { awaiting, asking: 0 })].filter(Boolean).join(' ')}
      </p>
      <div
        ref={roving.ref}
        onKeyDown={roving.onKeyDown}
        onFocus={roving.onFocus}
        tabIndex={-1}
        role="group"
        aria-label={trans.__('Code that waits for your approval')}
      >
        {entries.length === 0 && isNotConnected && <NotConnected />}
        {entries.length === 0 && !isNotConnected && (
          <p className="jex-Empty">
            {trans.__('No runs need your approval. Code that a policy holds back appears here.')}
          </p>
        )}
        {entries.length > 0 && (
          <ul className="jex-List">
            {entries.map(entry => (
              <EntryRow
                key={entry.execution.id}
                entry={entry}
                queue={queue}
                policies={policies}
                now={now}
                onDecide={decide}
              />
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}

function useEntries(queue: ApprovalQueue): readonly IEntry[] {
  const [entries, setEntries] = React.useState(queue.entries);
  React.useEffect(() => {
    const update = (): void => setEntries(queue.entries);
    update();
    queue.changed.connect(update);
    return () => {
      queue.changed.disconnect(update);
    };
  }, [queue]);
  return React.useMemo(() => [...entries.values()], [entries]);
}

/** Return the policies, for their rules; without them the server's own sentence says why. */
function usePolicies(): readonly IPolicy[] {
  const { model } = useServices();
  const { info } = useExecState();
  const [policies, setPolicies] = React.useState<readonly IPolicy[]>([]);
  React.useEffect(() => {
    if (info !== null) {
      model.client.json<{ policies: IPolicy[] }>('policies').then(
        answer => setPolicies(answer.policies),
        (reason: unknown) => console.debug('Policies could not be listed.', reason)
      );
    }
  }, [model, info]);
  return policies;
}
