/** The views of the main area; loaded when the first one is opened. */

import { MainAreaWidget } from '@jupyterlab/apputils';
import { CommandToolbarButton, ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { ISession } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { botIcon } from '../icons';
import { type IServices, ServicesContext } from '../panel/services';
import { sessionName } from '../words';
import { ALL, VIEW_PREFIX } from '../plugins/places';
import { ChangedFiles } from './files';
import { AllView, SessionView } from './view';

const SESSION_BUTTONS = [
  CommandIDs.interrupt,
  CommandIDs.restart,
  CommandIDs.shutdown,
  CommandIDs.openConsole,
  CommandIDs.openNotebook,
  CommandIDs.showFiles
];

export function viewId(sessionId: string): string {
  return VIEW_PREFIX + sessionId;
}

/** Return a view of a session, or of all for `ALL`. */
export function createView(services: IServices, sessionId: string): MainAreaWidget {
  const { model, commands, trans } = services;
  const content = ReactWidget.create(
    <ServicesContext.Provider value={{ ...services, Files: ChangedFiles }}>
      {sessionId === ALL ? <AllView /> : <SessionView sessionId={sessionId} />}
    </ServicesContext.Provider>
  );
  content.addClass('jex-View');
  const view = new MainAreaWidget({ content });
  view.id = viewId(sessionId);
  view.title.icon = botIcon;
  view.title.closable = true;
  if (sessionId === ALL) {
    view.title.label = trans.__("Agents' sessions");
    view.toolbar.hide();
    return view;
  }
  for (const id of SESSION_BUTTONS) {
    view.toolbar.addItem(id, new CommandToolbarButton({ commands, id, args: { sessionId } }));
  }
  let shown: ISession | undefined;
  const update = (): void => {
    const session = model.state.sessions.get(sessionId);
    view.title.label = session === undefined ? trans.__("An agent's session") : sessionName(session);
    if (session !== shown) {
      shown = session;
      SESSION_BUTTONS.forEach(id => commands.notifyCommandChanged(id));
    }
  };
  update();
  model.changed.connect(update);
  view.disposed.connect(() => model.changed.disconnect(update));
  return view;
}
