/** Form for a new token. */

import * as React from 'react';

import { messageOf } from '../api/errors';
import type { IPolicy } from '../api/types';
import { useExecState, useServices } from '../panel/services';
import { oneLine } from '../safety/text';
import { type Ask, ASKS, askLimits, askWords } from './ask';
import { createToken, type IIssued, listPolicies } from './calls';
import { ordered, scopeWords, USUAL } from './scopes';
import { lifetimesSeconds, lifetimeWords, policyWords, usualLifetime } from './tokenWords';

/** The server's limit. */
const MAX_NAME_CHARS = 256;

export function TokenForm(props: {
  onIssued: (issued: IIssued) => void;
  onCancel: () => void;
}): React.ReactElement {
  const { model, trans } = useServices();
  const { info } = useExecState();
  const { policies, problem: noPolicies } = usePolicies();
  const [name, setName] = React.useState('');
  const [chosen, setChosen] = React.useState<string | null>(null);
  const lifetimes = lifetimesSeconds(info?.limits.max_token_seconds);
  const [wished, setWished] = React.useState<number | null>(null);
  const lifetime = wished ?? usualLifetime(lifetimes);
  const own = info?.caller.scopes ?? USUAL;
  const [scopes, setScopes] = React.useState<readonly string[]>(() =>
    USUAL.filter(each => own.includes(each))
  );
  const [ask, setAsk] = React.useState<Ask>('never');
  const [sending, setSending] = React.useState(false);
  const [problem, setProblem] = React.useState<string | null>(null);
  const policy = policies.find(each => each.name === chosen) ?? policies[0];
  const describe = React.useId();
  const asks = React.useId();
  const first = React.useRef<HTMLInputElement>(null);
  React.useEffect(() => {
    // The section may just have been opened, and take its place in the next frame.
    const frame = window.requestAnimationFrame(() => first.current?.focus());
    return () => window.cancelAnimationFrame(frame);
  }, []);

  const create = (event: React.FormEvent): void => {
    event.preventDefault();
    if (policy === undefined || sending) {
      return;
    }
    setSending(true);
    setProblem(null);
    const request = {
      name: name.trim(),
      policy: policy.name,
      scopes,
      expires_in_seconds: lifetime,
      limits: askLimits(ask)
    };
    createToken(model.client, request)
      .then(props.onIssued, (error: unknown) => setProblem(messageOf(error)))
      .finally(() => setSending(false));
  };

  return (
    <form
      className="jex-TokenForm"
      aria-label={trans.__('New token')}
      onSubmit={create}
      onKeyDown={event => event.key === 'Escape' && props.onCancel()}
    >
      <label>
        <span>{trans.__('Name')}</span>
        <input
          className="jex-Input"
          type="text"
          autoComplete="off"
          required
          ref={first}
          maxLength={MAX_NAME_CHARS}
          placeholder={trans.__('what the token is for')}
          value={name}
          onChange={event => setName(event.target.value)}
        />
      </label>
      <label>
        <span>{trans.__('Policy')}</span>
        <select
          className="jex-Select"
          aria-describedby={describe}
          value={policy?.name ?? ''}
          onChange={event => setChosen(event.target.value)}
        >
          {policies.map(each => (
            <option key={each.name} value={each.name}>
              {oneLine(each.name, 60)}
            </option>
          ))}
        </select>
      </label>
      <p id={describe} className="jex-Note">
        {policy !== undefined && policyWords(trans, policy)}
      </p>
      <label>
        <span>{trans.__('Valid for')}</span>
        <select
          className="jex-Select"
          value={lifetime}
          onChange={event => setWished(Number(event.target.value))}
        >
          {lifetimes.map(seconds => (
            <option key={seconds} value={seconds}>
              {lifetimeWords(trans, seconds)}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span>{trans.__('Ask me')}</span>
        <select
          className="jex-Select"
          aria-describedby={asks}
          value={ask}
          onChange={event => setAsk(event.target.value as Ask)}
        >
          {ASKS.map(each => (
            <option key={each} value={each}>
              {askWords(trans, each)}
            </option>
          ))}
        </select>
      </label>
      <p id={asks} className="jex-Note">
        {ask === 'never'
          ? trans.__('Code runs without a question, unless the policy asks.')
          : trans.__('Code waits for you in this panel. Uploads are refused, since a file may be code.')}
      </p>
      <fieldset className="jex-Scopes">
        <legend>{trans.__('Permissions')}</legend>
        {ordered(own).map(scope => (
          <label key={scope} title={scope}>
            <input
              type="checkbox"
              checked={scopes.includes(scope)}
              onChange={event =>
                setScopes(event.target.checked ? [...scopes, scope] : scopes.filter(each => each !== scope))
              }
            />
            <span>{oneLine(scopeWords(trans, scope))}</span>
          </label>
        ))}
      </fieldset>
      {(problem ?? noPolicies) !== null && (
        <p className="jex-Note jex-Warn" role="alert">
          {oneLine(problem ?? noPolicies ?? '', 500)}
        </p>
      )}
      <div className="jex-Actions">
        <button
          className="jex-Button jex-Primary"
          type="submit"
          disabled={sending || policy === undefined || scopes.length === 0 || name.trim() === ''}
        >
          {trans.__('Create')}
        </button>
        <button className="jex-Button" type="button" onClick={props.onCancel}>
          {trans.__('Cancel')}
        </button>
      </div>
    </form>
  );
}

function usePolicies(): { policies: readonly IPolicy[]; problem: string | null } {
  const { model } = useServices();
  const [policies, setPolicies] = React.useState<readonly IPolicy[]>([]);
  const [problem, setProblem] = React.useState<string | null>(null);
  React.useEffect(() => {
    listPolicies(model.client).then(setPolicies, (error: unknown) => setProblem(messageOf(error)));
  }, [model]);
  return { policies, problem };
}
