/** Help of the panel: its sections and its keys. It is shown without a network, too. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

export async function showHelp(trans: TranslationBundle): Promise<void> {
  const sections: [string, string][] = [
    [trans.__('Approvals'), trans.__('Code that a policy holds back until you approve or reject it.')],
    [
      trans.__('Sessions'),
      trans.__('What agents run, as it happens. Open a row to see code, output and files.')
    ],
    [trans.__('Tokens'), trans.__('Limited access for agents. You can revoke it, and it ends at once.')],
    [trans.__('Isolation and limits'), trans.__('What the code of agents can reach on this server.')]
  ];
  const keys: [string, string][] = [
    ['↑ ↓', trans.__('go from row to row')],
    ['→ ←', trans.__('open and close a row')],
    ['Tab', trans.__('go to the buttons of a row')],
    [trans.__('Shift F10'), trans.__('show everything that can be done with a session')]
  ];
  await showDialog({
    title: trans.__("Help on agents' sessions"),
    body: (
      <div className="jex-Help">
        <Terms terms={sections} />
        <h3>{trans.__('Keys')}</h3>
        <Terms terms={keys} />
      </div>
    ),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

function Terms(props: { terms: readonly [string, string][] }): React.ReactElement {
  return (
    <dl>
      {props.terms.map(([term, meaning]) => (
        <React.Fragment key={term}>
          <dt>{term}</dt>
          <dd>{meaning}</dd>
        </React.Fragment>
      ))}
    </dl>
  );
}
