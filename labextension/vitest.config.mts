import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    setupFiles: ['tests/setup.ts'],
    // They run beside the suite of the server; no test measures by this.
    testTimeout: 20_000,
    include: ['tests/**/*.spec.{ts,tsx}'],
    server: { deps: { inline: [/@jupyterlab/, /@lumino/, /@jupyter/] } }
  }
});
