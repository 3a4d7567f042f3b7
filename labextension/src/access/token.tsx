/** One token: a line, what it may do below it while it is open, and the tokens that it has created. */

import { caretDownIcon, caretRightIcon, closeIcon, linkIcon, refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ruleWords } from '../approvals/approvalWords';
import { attempt } from '../commands/context';
import { IconButton } from '../panel/button';
import { useOpened } from '../panel/opened';
import { useExecState, useServices } from '../panel/services';
import { limitName, limitValue } from '../panel/limits';
import { ageWords } from '../words';
import { oneLine } from '../safety/text';
import { revokeGrant } from './calls';
import { ordered, scopeWords } from './scopes';
import { type INode, tokenState } from './tokenTree';
import { leftWords, tokenName, tokenStateWords } from './tokenWords';

export interface ITokenActions {
  revoke(node: INode): void;
  rotate(node: INode): void;
}

export function TokenRow(props: {
  node: INode;
  within?: string;
  now: number;
  actions: ITokenActions;
}): React.ReactElement {
  const { node, now, actions } = props;
  const { trans } = useServices();
  const { token, children } = node;
  const name = tokenName(token);
  const state = tokenState(token, now);
  const active = state === 'active';
  const key = `token ${token.id}`;
  const [open, setOpen] = useOpened(key, false);
  const Caret = open ? caretDownIcon : caretRightIcon;
  return (
    <li className="jex-Token" data-state={state}>
      <div className="jex-Row">
        <button
          className="jex-Row-main"
          data-roving={key}
          data-within={props.within}
          tabIndex={-1}
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          title={name}
        >
          <Caret.react tag="span" className="jex-Caret" />
          <span className="jex-Row-text">
            <span className="jex-Row-name jex-Ellipsis">{name}</span>
            <span className="jex-Row-detail jex-Ellipsis">
              <span>{active ? leftWords(trans, token.expires_at, now) : tokenStateWords(trans, state)}</span>
              <span>{oneLine(token.policy, 60)}</span>
              <span>{used()}</span>
              {children.length > 0 && (
                <span>{trans._n('1 derived token', '%1 derived tokens', children.length)}</span>
              )}
            </span>
          </span>
        </button>
        {active && (
          <span className="jex-Row-actions">
            <IconButton
              icon={refreshIcon}
              label={trans.__('Replace the secret of %1', name)}
              onClick={() => actions.rotate(node)}
            />
            <IconButton
              icon={closeIcon}
              label={trans.__('Revoke %1', name)}
              onClick={() => actions.revoke(node)}
            />
          </span>
        )}
      </div>
      <Grants tokenId={token.id} />
      {open && <Details node={node} state={tokenStateWords(trans, state)} />}
      {children.length > 0 && (
        <ul className="jex-List jex-Children" aria-label={trans.__('Tokens that %1 has created', name)}>
          {children.map(child => (
            <TokenRow key={child.token.id} node={child} within={key} now={now} actions={actions} />
          ))}
        </ul>
      )}
    </li>
  );

  function used(): string {
    return token.last_used_at === null
      ? trans.__('never used')
      : trans.__('used: %1', ageWords(trans, token.last_used_at, now));
  }
}

/** The kernels that a token may attach to. */
function Grants({ tokenId }: { tokenId: string }): React.ReactElement | null {
  const { model, trans } = useServices();
  const grants = [...useExecState().grants.values()].filter(each => each.token_id === tokenId);
  if (grants.length === 0) {
    return null;
  }
  return (
    <ul className="jex-List jex-Grants" aria-label={trans.__('Kernels that are shared with it')}>
      {grants.map(grant => {
        const name = oneLine(grant.name, 60) || grant.kernel_id;
        return (
          <li key={grant.id} title={grant.kernel_id}>
            <linkIcon.react tag="span" className="jex-Caret" />
            <span className="jex-Ellipsis">{trans.__('kernel of %1', name)}</span>
            <IconButton
              icon={closeIcon}
              label={trans.__('Stop sharing the kernel of %1', name)}
              onClick={() => void attempt(revokeGrant(model.client, grant.id))}
            />
          </li>
        );
      })}
    </ul>
  );
}

function Details({ node, state }: { node: INode; state: string }): React.ReactElement {
  const { trans } = useServices();
  const { token } = node;
  const asks = ruleWords(trans, token.limits.approval);
  const time = (iso: string): string => new Date(iso).toLocaleString();
  const facts: [string, string][] = [
    [trans.__('State'), state],
    ...Object.entries(token.limits)
      .filter(([name]) => name !== 'approval')
      .map(([name, value]): [string, string] => [
        limitName(trans, name),
        limitValue(trans, name, value, null)
      ]),
    ...(asks === '' ? [] : ([[trans.__('Asks you about'), asks]] as [string, string][])),
    [trans.__('Created'), time(token.created_at)],
    [trans.__('Created by'), oneLine(token.created_by, 80) || '–'],
    [trans.__('Expires'), time(token.expires_at)],
    [trans.__('Last used'), token.last_used_at === null ? trans.__('never') : time(token.last_used_at)],
    ...(token.revoked_at === null
      ? []
      : ([[trans.__('Revoked'), time(token.revoked_at)]] as [string, string][])),
    [trans.__('Id'), token.id]
  ];
  return (
    <div className="jex-Details">
      <dl className="jex-Facts">
        {facts.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </React.Fragment>
        ))}
      </dl>
      <p className="jex-Note">{trans.__('Permissions')}</p>
      <ul className="jex-ScopeList">
        {ordered(token.scopes).map(scope => (
          <li key={scope} title={scope}>
            {oneLine(scopeWords(trans, scope))}
          </li>
        ))}
      </ul>
    </div>
  );
}
