/** The sections of the panel, from top to bottom. */

import { tokensSection } from '../access/section';
import { approvalsSection } from '../approvals/section';
import { policySection } from './policy';
import type { ISection } from './section';
import { sessionsSection } from './sessions';

export const SECTIONS: readonly ISection[] = [
  approvalsSection,
  sessionsSection,
  tokensSection,
  policySection
];
