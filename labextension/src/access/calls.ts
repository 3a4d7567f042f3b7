/** `exec/v1` about tokens, the kernels that are granted to them, and policies. */

import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { ExecClient } from '../api/client';
import type { IGrant, IPolicy, IToken } from '../api/types';

/** A token with its secret, which the server says this once. */
export interface IIssued {
  readonly token: IToken;
  readonly secret: string;
}

export interface ITokenRequest {
  readonly name: string;
  readonly policy?: string;
  readonly scopes: readonly string[];
  readonly expires_in_seconds: number;
  readonly limits?: ReadonlyPartialJSONObject;
}

export async function listPolicies(client: ExecClient): Promise<readonly IPolicy[]> {
  return (await client.json<{ policies: IPolicy[] }>('policies')).policies;
}

/** List all tokens, also those that let nobody in any more. */
export async function listAll(client: ExecClient): Promise<readonly IToken[]> {
  return (await client.json<{ tokens: IToken[] }>('tokens?ended=true')).tokens;
}

export async function createToken(client: ExecClient, request: ITokenRequest): Promise<IIssued> {
  return issued(await client.json('tokens', 'POST', request));
}

/** Give a token another secret; the one before is worth nothing from now on. */
export async function rotateToken(client: ExecClient, id: string): Promise<IIssued> {
  return issued(await client.json(`tokens/${encodeURIComponent(id)}/rotate`, 'POST', {}));
}

/** Revoke a token and those below it. */
export async function revokeToken(client: ExecClient, id: string): Promise<void> {
  await client.request(`tokens/${encodeURIComponent(id)}`, { method: 'DELETE' });
}

export interface IGrantRequest {
  readonly token_id: string;
  readonly kernel_id: string;
  readonly name: string;
  readonly expires_in_seconds: number | null;
}

/** Let a token attach to a running kernel. */
export function createGrant(client: ExecClient, request: IGrantRequest): Promise<IGrant> {
  return client.json<IGrant>('grants', 'POST', request);
}

export async function revokeGrant(client: ExecClient, id: string): Promise<void> {
  await client.request(`grants/${encodeURIComponent(id)}`, { method: 'DELETE' });
}

function issued(answer: IToken & { token: string }): IIssued {
  const { token: secret, ...token } = answer;
  return { token, secret };
}
