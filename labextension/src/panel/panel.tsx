/** The side panel: a banner about the connection, and the sections below it. */

import { ReactWidget, SidePanel } from '@jupyterlab/ui-components';
import type { ITranslator } from '@jupyterlab/translation';
import { MessageLoop } from '@lumino/messaging';
import { AccordionPanel, Panel } from '@lumino/widgets';
import * as React from 'react';

import { isOutOfReach } from '../model/state';
import { heightToShare, leastPixels, resize } from './expand';
import { rememberOpened, wasOpened } from './opened';
import { oneLine } from '../safety/text';
import { SECTIONS } from './sections';
import { type IServices, ServicesContext, useExecState, useServices } from './services';
import { troubleWords } from '../words';

/** Of the panel's height. */
const FAIR_SHARE = 0.4;

export function fillPanel(place: Panel, services: IServices, translator: ITranslator): void {
  const header = new Panel();
  header.addWidget(
    ReactWidget.create(
      <ServicesContext.Provider value={services}>
        <ConnectionBanner />
      </ServicesContext.Provider>
    )
  );
  const panel = new SidePanel({ header, translator });
  panel.addClass('jex-Panel');
  SECTIONS.forEach((section, index) => {
    const { collapsed } = section;
    panel.addWidget(section.create(services));
    const closed = typeof collapsed === 'function' ? collapsed(services) : collapsed === true;
    if (!(wasOpened(section.id) ?? !closed) && panel.content instanceof AccordionPanel) {
      panel.content.collapse(index);
    }
  });
  if (panel.content instanceof AccordionPanel) {
    giveRoom(panel.content);
  }
  MessageLoop.installMessageHook(place, (_, message) => {
    if (message.type === 'activate-request') {
      focusWithin(panel.node);
    } else if (message.type === 'resize') {
      // The least height of code to approve depends on the window's.
      panel.content.fit();
    }
    return true;
  });
  place.addWidget(panel);
}

/** Give a section that is opened its room; where there is too little for all, others close. */
function giveRoom(sections: AccordionPanel): void {
  sections.expansionToggled.connect((_, index) => {
    const section = sections.widgets[index];
    if (section === undefined) {
      return;
    }
    rememberOpened(section.id, !section.isHidden);
    let room = heightToShare(sections);
    if (section.isHidden || room <= 0) {
      return;
    }
    room -= leastPixels(section);
    for (const other of sections.widgets.filter(each => each !== section && !each.isHidden)) {
      room -= leastPixels(other);
      if (room < 0) {
        sections.collapse(sections.widgets.indexOf(other));
      }
    }
    if ((sections.relativeSizes()[index] ?? 1) < FAIR_SHARE) {
      resize(section, FAIR_SHARE);
    }
  });
}

/** Move the focus into the panel: to the row that had it last, or to the search. */
function focusWithin(panel: HTMLElement): void {
  if (!panel.contains(document.activeElement)) {
    const rows = [...panel.querySelectorAll<HTMLElement>('[data-roving][tabindex="0"]')];
    const shown = rows.find(row => row.offsetParent !== null);
    (shown ?? panel.querySelector<HTMLElement>('input[type="search"]'))?.focus();
  }
}

/** Nothing while all is well. */
function ConnectionBanner(): React.ReactElement | null {
  const { model, trans } = useServices();
  const { connection } = useExecState();
  if (!isOutOfReach(connection)) {
    return null;
  }
  return (
    <div className="jex-Banner" role="alert">
      <span>
        {troubleWords(trans, connection.trouble)}
        {connection.trouble === 'policies' && <code>{oneLine(connection.message, 1000)}</code>}
      </span>
      <button className="jex-Button" title={connection.message} onClick={() => model.retry()}>
        {trans.__('Try again')}
      </button>
    </div>
  );
}
