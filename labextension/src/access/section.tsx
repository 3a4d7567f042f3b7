/** The section of tokens: limited access for agents, handed out and taken away. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { addIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { messageOf } from '../api/errors';
import type { IToken } from '../api/types';
import { NO_ARGS } from '../commands/args';
import { attempt } from '../commands/context';
import { CommandIDs } from '../commands/ids';
import { expand, resize } from '../panel/expand';
import { NotConnected, useIsNotConnected } from '../panel/notConnected';
import { useRoving } from '../panel/roving';
import { type ISection, SectionWidget } from '../panel/section';
import { type IServices, useExecState, useNow, useServices } from '../panel/services';
import { oneLine } from '../safety/text';
import { type IIssued, listAll, revokeToken, rotateToken } from './calls';
import { TokenForm } from './form';
import { showIssued } from './issued';
import { Switch, useSwitch } from './switch';
import { type ITokenActions, TokenRow } from './token';
import { activeBelow, type INode, tokenState, tree } from './tokenTree';
import { tokenName } from './tokenWords';

/** Of the panel's height, for the form. */
const FORM_SHARE = 0.7;

export const tokensSection: ISection = {
  id: 'jupyter-exec-ext-tokens',
  title: trans => trans.__('Tokens'),
  collapsed: true,
  create
};

function create(services: IServices): SectionWidget {
  const { commands, trans } = services;
  const form = new Switch();
  const widget = new SectionWidget(tokensSection, services, <Tokens form={form} />);
  form.changed.connect(() => form.on && resize(widget, FORM_SHARE));
  commands.addCommand(CommandIDs.newToken, {
    label: trans.__('New Token for an Agent…'),
    icon: addIcon,
    describedBy: NO_ARGS,
    execute: async () => {
      await commands.execute(CommandIDs.open);
      expand(widget);
      form.set(true);
    }
  });
  return widget;
}

function Tokens({ form }: { form: Switch }): React.ReactElement {
  const { model, trans } = useServices();
  const { info, tokens } = useExecState();
  const isNotConnected = useIsNotConnected();
  const now = useNow(30);
  const roving = useRoving();
  const creating = useSwitch(form);
  const [showEnded, setShowEnded] = React.useState(false);
  const { ended, problem } = useEnded(showEnded);
  const button = React.useRef<HTMLButtonElement>(null);

  const nodes = React.useMemo(() => {
    const known = new Map<string, IToken>(showEnded ? ended.map(token => [token.principal, token]) : []);
    for (const [principal, token] of tokens) {
      if (showEnded || tokenState(token, now) === 'active') {
        known.set(principal, token);
      }
    }
    return tree(known.values());
  }, [tokens, ended, showEnded, now]);

  const show = (issued: IIssued): Promise<void> =>
    showIssued(trans, issued, {
      url: model.client.settings.baseUrl,
      kernelName: info?.default_kernel_name ?? 'python3',
      hasMcp: info?.features.includes('mcp') ?? false
    });
  const close = (): void => {
    form.set(false);
    window.requestAnimationFrame(() => button.current?.focus());
  };
  const actions: ITokenActions = {
    revoke: node => void revoke(node),
    rotate: node => void rotate(node)
  };

  return (
    <div className="jex-Tokens">
      {creating ? (
        <TokenForm
          onCancel={close}
          onIssued={issued => {
            form.set(false);
            void show(issued).then(() => button.current?.focus());
          }}
        />
      ) : (
        <div className="jex-FilterBar">
          <button ref={button} className="jex-Button" onClick={() => form.set(true)}>
            {trans.__('New token…')}
          </button>
          <label className="jex-Check">
            <input
              type="checkbox"
              checked={showEnded}
              onChange={event => setShowEnded(event.target.checked)}
            />
            <span>{trans.__('Show ended')}</span>
          </label>
        </div>
      )}
      {problem !== null && (
        <p className="jex-Note jex-Warn" role="alert">
          {oneLine(problem, 500)}
        </p>
      )}
      {nodes.length === 0 &&
        (isNotConnected ? (
          <NotConnected />
        ) : (
          <p className="jex-Empty">
            {trans.__(
              'No tokens. A token gives an agent limited access to this server, for as long as you say.'
            )}
          </p>
        ))}
      <div ref={roving.ref} onKeyDown={roving.onKeyDown} onFocus={roving.onFocus}>
        <ul className="jex-List" aria-label={trans.__('Tokens')}>
          {nodes.map(node => (
            <TokenRow key={node.token.id} node={node} now={now} actions={actions} />
          ))}
        </ul>
      </div>
    </div>
  );

  async function revoke(node: INode): Promise<void> {
    const below = activeBelow(node, Date.now());
    const body = [
      trans.__('Its runs end within a second, and its sessions are shut down.'),
      ...(below > 0
        ? [trans._n('1 derived token is revoked, too.', '%1 derived tokens are revoked, too.', below)]
        : [])
    ].join(' ');
    const title = trans.__('Revoke “%1”?', oneLine(tokenName(node.token), 60));
    if (await confirmed(title, body, trans.__('Revoke'))) {
      await attempt(revokeToken(model.client, node.token.id));
    }
  }

  async function rotate(node: INode): Promise<void> {
    const title = trans.__('Replace the secret of “%1”?', oneLine(tokenName(node.token), 60));
    const body = trans.__('The current secret stops working immediately. Sessions continue.');
    if (await confirmed(title, body, trans.__('Replace'))) {
      const issued = await attempt(rotateToken(model.client, node.token.id));
      if (issued !== undefined) {
        await show(issued);
      }
    }
  }

  async function confirmed(title: string, body: string, label: string): Promise<boolean> {
    const answer = await showDialog({
      title,
      body,
      defaultButton: 0,
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label })]
    });
    return answer.button.accept;
  }
}

/** Tokens that let nobody in any more are read when they are asked for. */
function useEnded(wanted: boolean): { ended: readonly IToken[]; problem: string | null } {
  const { model } = useServices();
  const [ended, setEnded] = React.useState<readonly IToken[]>([]);
  const [problem, setProblem] = React.useState<string | null>(null);
  React.useEffect(() => {
    if (wanted) {
      listAll(model.client).then(
        tokens => {
          setEnded(tokens);
          setProblem(null);
        },
        (error: unknown) => setProblem(messageOf(error))
      );
    }
  }, [model, wanted]);
  return { ended, problem };
}
