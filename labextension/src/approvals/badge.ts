/** The number of what waits, on the panel's icon. */

import type { TranslationBundle } from '@jupyterlab/translation';
import type { Title, Widget } from '@lumino/widgets';

import { counts } from '../model/view';
import type { IExecModel } from '../tokens';

/** Of the tab's node; the style sheet draws what it holds. */
const ATTRIBUTE = 'jex-waiting';

export function showWaiting(title: Title<Widget>, model: IExecModel, trans: TranslationBundle): void {
  const caption = title.caption;
  let shown = 0;
  const update = (): void => {
    const { awaiting } = counts(model.state);
    if (awaiting === shown) {
      return;
    }
    shown = awaiting;
    const others = Object.entries(title.dataset).filter(([name]) => name !== ATTRIBUTE);
    const badge = awaiting > 0 ? [[ATTRIBUTE, badgeText(awaiting)]] : [];
    title.dataset = Object.fromEntries([...others, ...badge]) as Title.Dataset;
    // The caption is the tab's name for those who do not see it.
    title.caption =
      awaiting > 0
        ? `${caption} (${trans._n('one execution waits for you', '%1 executions wait for you', awaiting)})`
        : caption;
  };
  model.changed.connect(update);
  update();
}

/** There is room for two characters. */
export function badgeText(count: number): string {
  return count > 9 ? '9+' : String(count);
}
