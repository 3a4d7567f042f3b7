export { showWaiting } from '../approvals/badge';
export { strictRenderers } from '../outputs/renderers';
export { menuOpener } from './menu';
export { fillPanel } from './panel';
export { PanelSettings } from './settings';
