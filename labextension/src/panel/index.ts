export { showWaiting } from '../approvals/badge';
export { strictRenderers } from '../outputs/renderers';
export { menuOpener } from './menu';
export { createPanel, PANEL_ID } from './panel';
export { PanelSettings } from './settings';
