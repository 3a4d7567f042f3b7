/** Height of the panel's sections: each open one has a least height, and one that needs room gets a share. */

import { MessageLoop } from '@lumino/messaging';
import { AccordionPanel, Widget } from '@lumino/widgets';

/** Open a section; does nothing while the section is in no panel. */
export function expand(section: Widget): void {
  const panel = section.parent;
  if (panel instanceof AccordionPanel) {
    panel.expand(panel.widgets.indexOf(section));
  }
}

/** A section with less height shows too little to be used. */
const LEAST_PIXELS = 120;

/** The least height of a section: that of its style sheet, if it has one. */
export function leastPixels(section: Widget): number {
  return Math.max(LEAST_PIXELS, parseFloat(getComputedStyle(section.node).minHeight) || 0);
}

/** The height that all sections share. */
export function heightToShare(panel: AccordionPanel): number {
  return panel.node.clientHeight - panel.titles.reduce((sum, each) => sum + each.offsetHeight, 0);
}

/** Give an open section a share of the height, between 0 and 1, as far as the others keep their least heights. */
export function resize(section: Widget, share: number): void {
  const panel = section.parent;
  if (!(panel instanceof AccordionPanel) || section.isHidden) {
    return;
  }
  // A section that was opened in this moment has no place yet, and loses a size that it is given before.
  MessageLoop.sendMessage(panel, Widget.Msg.FitRequest);
  const sizes = panel.relativeSizes();
  const height = Math.max(1, heightToShare(panel));
  const others = panel.widgets.filter(each => each !== section && !each.isHidden);
  const least = new Map(others.map(each => [each, leastPixels(each) / height]));
  const leastOfOthers = [...least.values()].reduce((sum, each) => sum + each, 0);
  const own = Math.min(share, Math.max(1 - leastOfOthers, leastPixels(section) / height));
  const taken = others.reduce((sum, each) => sum + (sizes[panel.widgets.indexOf(each)] ?? 0), 0);
  if (taken > 0) {
    const spare = Math.max(0, 1 - own - leastOfOthers);
    panel.setRelativeSizes(
      panel.widgets.map((each, index) =>
        each === section ? own : (least.get(each) ?? 0) + ((sizes[index] ?? 0) / taken) * spare
      )
    );
  }
}
