/** Icons that JupyterLab does not have. */

import { LabIcon } from '@jupyterlab/ui-components';

export const botIcon = new LabIcon({
  name: 'jupyter-exec-ext:bot',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M11 2h2v3h5a3 3 0 0 1 3 3v9a3 3 0 0 1-3 3H6a3 3 0 0 1-3-3V8a3 3 0 0 1 3-3h5V2zM6 7a1 1 0 0 0-1 1v9a1 1 0 0 0 1 1h12a1 1 0 0 0 1-1V8a1 1 0 0 0-1-1H6z"/>
    <path d="M7.7 9.3 11 12.5l-3.300 3.200-1.400-1.400 1.900-1.800-1.900-1.800zM12 14h5v2h-5z"/>
    <path d="M0 11h2v4H0zM22 11h2v4h-2z"/>
  </g>
</svg>`
});

export const branchIcon = new LabIcon({
  name: 'jupyter-exec-ext:branch',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M6 2a3 3 0 0 1 1 5.800v8.400a3 3 0 1 1-2 0V7.800A3 3 0 0 1 6 2zm0 2a1 1 0 1 0 0 2 1 1 0 0 0 0-2zm0 14a1 1 0 1 0 0 2 1 1 0 0 0 0-2z"/>
    <path d="M18 4a3 3 0 0 1 1 5.800V11a4 4 0 0 1-4 4H7v-2h8a2 2 0 0 0 2-2V9.800A3 3 0 0 1 18 4zm0 2a1 1 0 1 0 0 2 1 1 0 0 0 0-2z"/>
  </g>
</svg>`
});
