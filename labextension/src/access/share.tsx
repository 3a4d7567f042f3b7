/** Dialog that shares a kernel with one token, and gives the snippet for the agent. */

import { Dialog, ReactWidget, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import type { IGrant, IToken } from '../api/types';
import type { IExecState } from '../model/state';
import { oneLine } from '../safety/text';
import type { IExecModel } from '../tokens';
import { createGrant, createToken, type IIssued, revokeToken } from './calls';
import { Copyable, useOwnKeys } from './issued';
import { USUAL } from './scopes';
import { attachSnippet } from './snippets';
import { tokenState } from './tokenTree';
import { HOUR_SECONDS, lifetimesSeconds, lifetimeWords, tokenName, usualLifetime } from './tokenWords';

export interface IKernelChoice {
  readonly kernelId: string;
  /** The name of its notebook or console. */
  readonly name: string;
  readonly label: string;
}

export interface IWish {
  readonly kernel: IKernelChoice;
  /** Null for a new one. */
  readonly token: IToken | null;
  readonly newName: string;
  /** Null for as long as the token and the kernel last. */
  readonly seconds: number | null;
}

export interface IShared {
  readonly grant: IGrant;
  /** The token, if it was made for this. */
  readonly issued: IIssued | null;
}

/** How long a grant may last, if not until somebody ends it. */
const LIFETIMES_SECONDS: readonly number[] = [HOUR_SECONDS, 8 * HOUR_SECONDS];

/** Ask which kernel is shared with which token; returns null if the person decides against it. */
export async function askToShare(
  trans: TranslationBundle,
  state: IExecState,
  kernels: readonly IKernelChoice[],
  current: string | null
): Promise<IWish | null> {
  const kernel = kernels.find(each => each.kernelId === current) ?? kernels[0];
  if (kernel === undefined) {
    return null;
  }
  const answer = await showDialog({
    title: trans.__('Share a kernel with an agent'),
    body: new Question(trans, state, kernels, kernel),
    // Not the button: what it does is to be read first.
    focusNodeSelector: '.jex-Share select',
    buttons: [
      Dialog.cancelButton({ label: trans.__('Cancel') }),
      Dialog.okButton({ label: trans.__('Share') })
    ]
  });
  return answer.button.accept ? answer.value : null;
}

/** Make the token, if there is to be a new one, and grant it the kernel. */
export async function share(model: IExecModel, wish: IWish): Promise<IShared> {
  let issued: IIssued | null = null;
  if (wish.token === null) {
    const { info } = model.state;
    const own = info?.caller.scopes ?? USUAL;
    issued = await createToken(model.client, {
      name: wish.newName,
      scopes: USUAL.filter(each => own.includes(each)),
      expires_in_seconds: usualLifetime(lifetimesSeconds(info?.limits.max_token_seconds))
    });
  }
  const token = issued?.token ?? wish.token;
  try {
    const grant = await createGrant(model.client, {
      token_id: token?.id ?? '',
      kernel_id: wish.kernel.kernelId,
      name: wish.kernel.name,
      expires_in_seconds: wish.seconds
    });
    return { grant, issued };
  } catch (error) {
    // Nobody has its secret.
    await (issued && revokeToken(model.client, issued.token.id));
    throw error;
  }
}

/** Show what to paste where the agent is; resolves when the person has closed it. */
export async function showShared(trans: TranslationBundle, shared: IShared, url: string): Promise<void> {
  await showDialog({
    title: trans.__('“%1” is shared', oneLine(shared.grant.name, 60)),
    body: <Shared trans={trans} shared={shared} url={url} />,
    // Neither Escape nor a click beside it loses a secret.
    hasClose: shared.issued === null,
    focusNodeSelector: '.jex-Copyable button',
    buttons: [Dialog.okButton({ label: trans.__('Done') })]
  });
}

class Question extends ReactWidget implements Dialog.IBodyWidget<IWish> {
  constructor(
    private readonly _trans: TranslationBundle,
    private readonly _state: IExecState,
    private readonly _kernels: readonly IKernelChoice[],
    kernel: IKernelChoice
  ) {
    super();
    this.addClass('jex-Share');
    this._wish = { kernel, token: null, newName: '', seconds: null };
  }

  getValue(): IWish {
    const newName = this._wish.newName.trim() || this._usualName();
    return { ...this._wish, newName };
  }

  protected render(): React.ReactElement {
    const trans = this._trans;
    const { kernel, token, newName, seconds } = this._wish;
    return (
      <div className="jex-TokenForm">
        <label>
          <span>{trans.__('Kernel')}</span>
          <select
            className="jex-Select"
            value={kernel.kernelId}
            onChange={event => this._choose({ kernel: this._kernels[event.target.selectedIndex] ?? kernel })}
          >
            {this._kernels.map(each => (
              <option key={each.kernelId} value={each.kernelId}>
                {each.label}
              </option>
            ))}
          </select>
        </label>
        <label>
          <span>{trans.__('Token of the agent')}</span>
          <select
            className="jex-Select"
            value={token?.id ?? ''}
            onChange={event =>
              this._choose({ token: this._tokens().find(each => each.id === event.target.value) ?? null })
            }
          >
            <option value="">{trans.__('a new token')}</option>
            {this._tokens().map(each => (
              <option key={each.id} value={each.id}>
                {oneLine(`${tokenName(each)} (${each.policy})`, 80)}
              </option>
            ))}
          </select>
        </label>
        {token === null && (
          <label>
            <span>{trans.__('Name of the new token')}</span>
            <input
              className="jex-Input"
              type="text"
              autoComplete="off"
              maxLength={256}
              placeholder={this._usualName()}
              value={newName}
              onChange={event => this._choose({ newName: event.target.value })}
            />
          </label>
        )}
        <label>
          <span>{trans.__('Shared for')}</span>
          <select
            className="jex-Select"
            value={seconds ?? 0}
            onChange={event => this._choose({ seconds: Number(event.target.value) || null })}
          >
            <option value={0}>{trans.__('until you end it')}</option>
            {LIFETIMES_SECONDS.map(each => (
              <option key={each} value={each}>
                {lifetimeWords(trans, each)}
              </option>
            ))}
          </select>
        </label>
        <p className="jex-Share-warning">
          {trans.__(
            'Code that the agent runs in this kernel has your own rights: your files, your network, your variables. This kernel is not isolated.'
          )}
        </p>
        <p className="jex-Note">
          {trans.__(
            'The notebook’s toolbar shows what the agent runs, and ends the sharing with one click. Threads that its code has started go on until you restart the kernel.'
          )}
        </p>
      </div>
    );
  }

  private _choose(change: Partial<IWish>): void {
    // Another kernel may be shared with the chosen token already.
    const token = change.kernel === undefined ? this._wish.token : null;
    this._wish = { ...this._wish, token, ...change };
    this.update();
  }

  /** Tokens that can be granted the kernel: active ones of the person's own, the newest first. */
  private _tokens(): readonly IToken[] {
    const { kernel } = this._wish;
    const has = new Set(
      [...this._state.grants.values()]
        .filter(each => each.kernel_id === kernel.kernelId)
        .map(each => each.token_id)
    );
    return [...this._state.tokens.values()]
      .filter(
        each => each.parent_id === null && tokenState(each, Date.now()) === 'active' && !has.has(each.id)
      )
      .sort((a, b) => b.created_at.localeCompare(a.created_at));
  }

  private _usualName(): string {
    return this._trans.__('agent in %1', oneLine(this._wish.kernel.name, 60));
  }

  private _wish: IWish;
}

function Shared(props: { trans: TranslationBundle; shared: IShared; url: string }): React.ReactElement {
  const { trans, shared, url } = props;
  const { grant, issued } = shared;
  const body = React.useRef<HTMLDivElement>(null);
  useOwnKeys(body);
  return (
    <div className="jex-Issued" ref={body}>
      {issued === null ? (
        <p>{trans.__('The agent runs this with its token in the environment variable JUPYTER_TOKEN.')}</p>
      ) : (
        <>
          <p>
            {trans.__(
              'The token is shown once. Anyone who has it can use it until %1.',
              new Date(issued.token.expires_at).toLocaleString()
            )}
          </p>
          <Copyable trans={trans} what={trans.__('the token')} text={issued.secret} />
        </>
      )}
      <h3>{trans.__('Python')}</h3>
      <Copyable
        trans={trans}
        what={trans.__('the snippet for %1', trans.__('Python'))}
        text={attachSnippet(url, issued?.secret ?? null, grant.kernel_id)}
      />
      <h3>{trans.__('Kernel id')}</h3>
      <Copyable trans={trans} what={trans.__('the kernel id')} text={grant.kernel_id} />
    </div>
  );
}
