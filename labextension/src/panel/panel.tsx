/** The side panel: what there is to say about the connection, and the sections below it. */

import { ReactWidget, SidePanel } from '@jupyterlab/ui-components';
import type { ITranslator } from '@jupyterlab/translation';
import { AccordionPanel, Panel } from '@lumino/widgets';
import * as React from 'react';

import { botIcon } from '../icons';
import { SECTIONS } from './sections';
import { type IServices, ServicesContext, useExecState, useServices } from './services';
import { troubleWords } from './words';

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
    panel.addWidget(section.create(services));
    if (section.collapsed && panel.content instanceof AccordionPanel) {
      panel.content.collapse(index);
    }
  });
  return panel;
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
      <span>{troubleWords(trans, connection.trouble)}</span>
      <button className="jex-Button" title={connection.message} onClick={() => model.retry()}>
        {trans.__('Try again')}
      </button>
    </div>
  );
}
