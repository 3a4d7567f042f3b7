import jupyter from '@jupyter/eslint-plugin';
import tseslint from 'typescript-eslint';

const typescript = ['src/**/*.ts', 'src/**/*.tsx', 'tests/**/*.ts', 'tests/**/*.tsx'];

export default [
  { ignores: ['node_modules/', 'lib/', 'dist/', '*.js', '*.mjs', '*.mts', 'style/'] },
  { plugins: { jupyter } },
  ...tseslint.configs.recommendedTypeChecked.map(config => ({ ...config, files: typescript })),
  ...jupyter.configs.recommended,
  {
    files: typescript,
    languageOptions: {
      parserOptions: { project: './tsconfig.test.json', tsconfigRootDir: import.meta.dirname }
    }
  }
];
