/** The item of the status bar. */

import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { Widget } from '@lumino/widgets';
import * as React from 'react';

import { waitingWords } from './approvals/badge';
import { CommandIDs } from './commands/ids';
import { botIcon } from './icons';
import { counts, type ICounts } from './model/view';
import type { IExecModel } from './tokens';

export function createStatusItem(
  model: IExecModel,
  commands: CommandRegistry,
  trans: TranslationBundle
): { item: Widget; isActive: () => boolean } {
  const open = (): void => void commands.execute(CommandIDs.open);
  const item = ReactWidget.create(
    <UseSignal signal={model.changed}>
      {() => <Item counts={counts(model.state)} trans={trans} onClick={open} />}
    </UseSignal>
  );
  item.addClass('jex-StatusItem');
  return { item, isActive: () => counts(model.state).sessions > 0 };
}

function Item(props: { counts: ICounts; trans: TranslationBundle; onClick: () => void }): React.ReactElement {
  const { trans } = props;
  const { sessions, busy, awaiting, asking } = props.counts;
  const title = [
    trans._n('1 agent session', '%1 agent sessions', sessions),
    trans._n('one is busy', '%1 are busy', busy),
    ...waitingWords(trans, props.counts)
  ].join(', ');
  return (
    <button className="jex-StatusItem-button" title={title} aria-label={title} onClick={props.onClick}>
      <botIcon.react tag="span" className="jex-StatusItem-icon" />
      <span>{busy > 0 ? `${busy}/${sessions}` : String(sessions)}</span>
      {awaiting + asking > 0 && <span className="jex-StatusItem-waiting">{awaiting + asking}</span>}
    </button>
  );
}
