/** Texts about approvals. Pure. */

import type { TranslationBundle } from '@jupyterlab/translation';

import type { IApproval, IExecution, IPolicy, IToken } from '../api/types';
import { executionStateWords } from '../words';
import { oneLine } from '../safety/text';
import type { Outcome } from './queue';

/** Result of a decision, for those who do not see the list. */
export function outcomeWords(trans: TranslationBundle, outcome: Outcome): string {
  switch (outcome) {
    case 'approved':
      return trans.__('Approved.');
    case 'edited':
      return trans.__('Approved as edited.');
    case 'rejected':
      return trans.__('Rejected.');
    default:
      return '';
  }
}

/** Reason why an execution no longer waits. */
export function goneWords(trans: TranslationBundle, execution: IExecution): string {
  const approval = execution.approval;
  const by = oneLine(approval?.decided_by ?? '', 80) || trans.__('Another person');
  switch (approval?.decision) {
    case 'approved':
      return trans.__('%1 has approved it already.', by);
    case 'edited':
      return trans.__('%1 has approved it already, with other code.', by);
    case 'rejected':
      return trans.__('%1 has rejected it already.', by);
    case 'timeout':
      return trans.__('The time for a decision ran out. The code did not run.');
    default:
      return execution.state === 'awaiting_approval'
        ? trans.__('It no longer waits for approval.')
        : trans.__('It no longer waits for approval: %1.', executionStateWords(trans, execution.state));
  }
}

/** How much time is left to decide. */
export function leftWords(trans: TranslationBundle, expiresAt: string, now: number): string {
  const seconds = (Date.parse(expiresAt) - now) / 1000;
  if (seconds < 60) {
    return trans.__('less than a minute');
  }
  if (seconds < 3600) {
    return trans.__('%1 min', Math.floor(seconds / 60));
  }
  if (seconds < 86400) {
    return trans.__('%1 h %2 min', Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60));
  }
  return trans.__('%1 d', Math.floor(seconds / 86400));
}

/** Why code waits: each finding with its line. */
export function findingWords(trans: TranslationBundle, approval: IApproval): readonly string[] {
  return approval.findings.map(({ why, line }) =>
    line === null ? oneLine(why, 300) : trans.__('line %1: %2', line, oneLine(why, 300))
  );
}

/** Kinds of code that a policy and the limits of a token ask about; empty if unknown. */
export function rulesWords(
  trans: TranslationBundle,
  policy: IPolicy | undefined,
  token: IToken | undefined
): string {
  const words = [policy?.approval, token?.limits.approval].map(rule => ruleWords(trans, rule));
  return words.filter(each => each !== '').join(', ');
}

/** Kinds of code that a rule asks about, in its own words; empty for none. */
export function ruleWords(trans: TranslationBundle, approval: unknown): string {
  const rule = approval as { when?: unknown; modules?: unknown } | string | null | undefined;
  if (rule === 'always') {
    return trans.__('everything');
  }
  if (typeof rule !== 'object' || rule === null) {
    return '';
  }
  if (rule.when === 'always') {
    return trans.__('everything');
  }
  const when = Array.isArray(rule.when) ? rule.when.map(String) : [];
  const modules = Array.isArray(rule.modules) ? rule.modules.map(String) : [];
  const words = when.map(each =>
    each === 'imports' && modules.length > 0 ? `imports (${modules.join(', ')})` : each
  );
  return oneLine(words.join(', '), 200);
}
