/** Decisions of a person about an execution, as the server takes them. */

import type { ExecClient } from '../api/client';
import type { IExecution } from '../api/types';

export type Decision =
  | {
      readonly decision: 'approve';
      readonly code?: string;
      readonly reason: string;
      readonly for_session?: true;
    }
  | { readonly decision: 'reject'; readonly reason: string };

export function decide(client: ExecClient, executionId: string, decision: Decision): Promise<IExecution> {
  return client.json<IExecution>(`approvals/${encodeURIComponent(executionId)}`, 'POST', decision);
}
