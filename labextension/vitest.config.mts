import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    setupFiles: ['tests/setup.ts'],
    include: ['tests/**/*.spec.{ts,tsx}'],
    server: { deps: { inline: [/@jupyterlab/, /@lumino/, /@jupyter/] } }
  }
});
