/** The side panel: what there is to say about the connection, and the sections below it. */

import { ReactWidget, SidePanel } from '@jupyterlab/ui-components';
import type { ITranslator } from '@jupyterlab/translation';
import { AccordionPanel, Panel } from '@lumino/widgets';
import * as React from 'react';

import { botIcon } from '../icons';
import { resize } from './expand';
import { SECTIONS } from './sections';
import { type IServices, ServicesContext, useExecState, useServices } from './services';
import { troubleWords } from './words';

/** Of the panel's height. */
const FAIR_SHARE = 0.4;

export const PANEL_ID = 'jupyter-exec-ext-panel';

export function createPanel(services: IServices, translator: ITranslator): SidePanel {
  const header = new Panel();
  header.addWidget(
    ReactWidget.create(
      <ServicesContext.Provider value={services}>
        <ConnectionBanner />
      </ServicesContext.Provider>
    )
  );
  const panel = new SidePanel({ header, translator });
  panel.id = PANEL_ID;
  panel.addClass('jex-Panel');
  panel.title.icon = botIcon;
  panel.title.caption = services.trans.__("Agents' sessions");
  panel.node.setAttribute('role', 'region');
  panel.node.setAttribute('aria-label', services.trans.__("Agents' sessions"));
  SECTIONS.forEach((section, index) => {
    const { collapsed } = section;
    panel.addWidget(section.create(services));
    if (
      (typeof collapsed === 'function' ? collapsed(services) : collapsed) &&
      panel.content instanceof AccordionPanel
    ) {
      panel.content.collapse(index);
    }
  });
  if (panel.content instanceof AccordionPanel) {
    giveRoom(panel.content);
  }
  return panel;
}

/** What is opened would otherwise get what little the others leave. */
function giveRoom(sections: AccordionPanel): void {
  sections.expansionToggled.connect((_, index) => {
    const section = sections.widgets[index];
    if (section !== undefined && !section.isHidden && (sections.relativeSizes()[index] ?? 1) < FAIR_SHARE) {
      resize(section, FAIR_SHARE);
    }
  });
}

/** Nothing while all is well. */
function ConnectionBanner(): React.ReactElement | null {
  const { model, trans } = useServices();
  const { connection } = useExecState();
  // One attempt that fails is nothing to tell anybody about.
  if (connection.status !== 'waiting' || (connection.trouble === 'unreachable' && connection.attempt < 2)) {
    return null;
  }
  return (
    <div className="jex-Banner" role="alert">
      <span>{troubleWords(trans, connection.trouble, connection.message)}</span>
      <button className="jex-Button" title={connection.message} onClick={() => model.retry()}>
        {trans.__('Try again')}
      </button>
    </div>
  );
}
