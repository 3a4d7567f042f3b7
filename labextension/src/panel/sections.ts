/** The sections of the panel, from top to bottom. */

import { policySection } from './policy';
import type { ISection } from './section';
import { sessionsSection } from './sessions';

export const SECTIONS: readonly ISection[] = [sessionsSection, policySection];
