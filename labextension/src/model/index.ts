/** The model, and the styles of all that shows it: loaded together, so that nothing is shown without its styles. */

import '../../style/index.js';

export { ExecClient } from '../api/client';
export { ExecModel } from './model';
