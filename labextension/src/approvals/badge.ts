/** The number of what waits for a person, on the panel's icon. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { Title, Widget } from '@lumino/widgets';

import { counts, type ICounts } from '../model/view';
import type { IExecModel } from '../tokens';

/** Of the tab's node; the style sheet draws what it holds. */
const ATTRIBUTE = 'jex-waiting';

export function showWaiting(title: Title<Widget>, model: IExecModel, trans: TranslationBundle): void {
  const caption = title.caption;
  let shown = '';
  const update = (): void => {
    const waiting = counts(model.state);
    const words = waitingWords(trans, waiting).join(', ');
    if (words === shown) {
      return;
    }
    shown = words;
    const others = Object.entries(title.dataset).filter(([name]) => name !== ATTRIBUTE);
    const badge = words === '' ? [] : [[ATTRIBUTE, badgeText(waiting.awaiting + waiting.asking)]];
    title.dataset = Object.fromEntries([...others, ...badge]) as Title.Dataset;
    // The caption is the tab's name for those who do not see it.
    title.caption = words === '' ? caption : `${caption} (${words})`;
  };
  model.changed.connect(update);
  update();
}

/** Tasks of a person; empty for none. */
export function waitingWords(
  trans: TranslationBundle,
  { awaiting, asking }: Pick<ICounts, 'awaiting' | 'asking'>
): readonly string[] {
  return [
    ...(awaiting > 0
      ? [trans._n('one run needs your approval', '%1 runs need your approval', awaiting)]
      : []),
    ...(asking > 0 ? [trans._n('one run waits for input', '%1 runs wait for input', asking)] : [])
  ];
}

/** There is room for two characters. */
export function badgeText(count: number): string {
  return count > 9 ? '9+' : String(count);
}
