import type { KernelSpec } from '@jupyterlab/services';
import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';

import { kernelWords, nameIsolatedKernels } from '../src/kernelNames';
import { limitName, limitValue } from '../src/panel/limits';
import { downloadName, notebookName, notebookPaths } from '../src/commands/fileNames';
import {
  ageWords,
  dayWords,
  durationWords,
  executionWords,
  headline,
  kindWords,
  lastOutcomeWords,
  limitWords,
  ownerName,
  ranSeconds,
  sessionName,
  sizeWords,
  standingWords
} from '../src/words';
import { execution, INFO, session, token } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');
const NOW = Date.parse('2026-01-02T00:00:00Z');

describe('words', () => {
  it('give the limits of a policy their units', () => {
    const limits: [string, number][] = [
      ['max_execution_seconds', 600],
      ['max_execution_seconds', 90],
      ['max_idle_seconds', 7200],
      ['max_token_seconds', 30 * 86400],
      ['max_output_bytes', 8388608],
      ['max_sessions', 5]
    ];
    expect(limits.map(([name, value]) => limitWords(trans, name, value))).toEqual([
      '10 min',
      '90 s',
      '2 h',
      '30 d',
      '8.4 MB',
      '5'
    ]);
  });

  it('name limits and their values', () => {
    const words = (name: string, value: unknown): string =>
      `${limitName(trans, name)}: ${limitValue(trans, name, value, null)}`;
    expect(words('max_sessions', 5)).toBe('Sessions at once: 5');
    expect(words('max_execution_seconds', 600)).toBe('Run time: 10 min');
    expect(words('max_cpu_seconds', null)).toBe('Processor time of a process: no limit');
    expect(words('isolation', 'sandbox')).toBe('Least isolation: sandbox');
    expect(words('attach', false)).toBe('Attach to running kernels: not allowed');
    expect(words('env', ['*'])).toBe('Environment variables: all');
    expect(words('kernelspecs', ['a', 'b'])).toBe('Kernels: a, b');
    expect(words('packages', 'install')).toBe('Packages of a session: may be installed');
    expect(words('packages', null)).toBe('Packages of a session: none');
    expect(words('approval', 'never')).toBe('Code that needs approval: none');
    expect(words('approval', { when: ['shell'] })).toBe('Code that needs approval: shell');
    expect(words('network', ['@packages', '*.example.com:443'])).toBe(
      'Network: @packages, *.example.com:443'
    );
    expect(words('network', null)).toBe('Network: none for isolated kernels');
    expect(words('network', 'host')).toBe('Network: network of this machine');
    expect(words('mounts', { '/data': '/srv/datasets' })).toBe(
      'Shared directories, read-only: /data from /srv/datasets'
    );
    expect(words('mounts', {})).toBe('Shared directories, read-only: none');
    expect(words('max_upload_bytes', 64_000_000)).toBe('Data sent to the network: 64.0 MB');
    expect(words('max_ports', 0)).toBe('Open ports of a session: none');
    expect(words('max_checkpoints', 0)).toBe('Checkpoints at once: none');
    expect(limitValue(trans, 'max_checkpoints', 0, 0)).toBe('none');
    expect(limitValue(trans, 'max_sessions', 0, 0)).toBe('no limit');
    expect(words('secrets', ['API_TOKEN'])).toBe('Secrets that the code uses and cannot read: API_TOKEN');
    expect(words('secrets', [])).toBe('Secrets that the code uses and cannot read: none');
    expect(words('of_a_newer_server', { a: 1 })).toBe('of_a_newer_server: {"a":1}');
  });

  it('name kernels with their isolation', () => {
    const names = ['python3', 'python3+sandbox', 'ir+landlock', 'c++'].map(name => kernelWords(trans, name));
    expect(names).toEqual(['python3', 'python3, sandboxed', 'ir, with Landlock', 'c++']);
  });

  it('name isolated kernels where their names are looked up, and list none', () => {
    const kernelspecs = { python3: { name: 'python3', display_name: 'Python 3' } };
    const manager = { specs: { kernelspecs }, specsChanged: { connect: () => true } };
    nameIsolatedKernels(manager as unknown as KernelSpec.IManager, trans);
    const found = kernelspecs as Record<string, { display_name: string } | undefined>;
    expect(found['python3+sandbox']?.display_name).toBe('Python 3, sandboxed');
    expect(Object.keys(kernelspecs)).toEqual(['python3']);
  });

  it('say the day, and the year only of another one', () => {
    const now = new Date(2026, 5, 10, 12).getTime();
    const day = (...date: [number, number, number]): string =>
      dayWords(trans, new Date(...date).toISOString(), now);
    expect([day(2026, 5, 10), day(2026, 5, 9)]).toEqual(['Today', 'Yesterday']);
    expect(day(2026, 5, 8)).toContain('8');
    expect(day(2026, 5, 8)).not.toContain('2026');
    expect(day(2025, 5, 10)).toContain('2025');
  });

  it('say durations in what fits', () => {
    const said = [0.012, 0.5, 9.94, 9.96, 59.4, 61, 3725].map(seconds => durationWords(trans, seconds));
    expect(said).toEqual(['12 ms', '0.5 s', '9.9 s', '10 s', '59 s', '1 min 1 s', '1 h 2 min']);
  });

  it('say ages in one unit', () => {
    const ages = [
      '2026-01-01T23:59:30Z',
      '2026-01-01T23:50:00Z',
      '2026-01-01T20:00:00Z',
      '2025-12-30T00:00:00Z'
    ];
    expect(ages.map(iso => ageWords(trans, iso, NOW))).toEqual(['now', '10 min', '4 h', '3 d']);
    expect(ageWords(trans, '2026-01-03T00:00:00Z', NOW)).toBe('now'); // a server whose clock is ahead
  });

  it('say sizes', () => {
    expect([0, 999, 1000, 1500, 999_999, 52_428_800].map(sizeWords)).toEqual([
      '0 B',
      '999 B',
      '1.0 kB',
      '1.5 kB',
      '1.0 MB',
      '52.4 MB'
    ]);
  });

  it('know how long something has run', () => {
    expect(ranSeconds(execution('e'), NOW)).toBeNull();
    const running = execution('e', { started_at: '2026-01-01T23:59:50Z' });
    expect(ranSeconds(running, NOW)).toBe(10);
    expect(ranSeconds({ ...running, finished_at: '2026-01-01T23:59:52Z' }, NOW)).toBe(2);
  });

  it('name sessions and owners, with nothing hidden in the names', () => {
    expect(sessionName(session('id'))).toBe('id');
    expect(sessionName(session('id', { name: ' a\u202Eb\nc ' }))).toBe('a‹U+202E›b c');
    expect(ownerName(trans, 'owner', null, INFO)).toBe('You');
    expect(ownerName(trans, 'token:x/y', null, INFO)).toBe('Token y');
    expect(ownerName(trans, 'token:x', token('x', { name: 'nightly\u0007' }), INFO)).toBe('nightly‹U+0007›');
  });

  it('take of code the first line that is no import, comment or magic', () => {
    expect(headline('\n  \n  x = 1\ny')).toBe('x = 1');
    expect(headline('# Load it\nimport a\nfrom b import (\n  c,\n  d\n)\n%time\n\ndata = a.b()')).toBe(
      'data = a.b()'
    );
    expect(headline('%%bash\nls -l')).toBe('ls -l');
    expect(headline('importance = 1')).toBe('importance = 1');
  });

  it('take the first line of code that has no other', () => {
    expect(headline('\n# only\nimport a')).toBe('# only');
    expect(headline('from a import (\n  b')).toBe('from a import (');
    expect(headline('')).toBe('');
  });

  it('say an error by its name and the first line of its message', () => {
    const words = (name: string, value: string): string =>
      executionWords(
        trans,
        execution('e', { state: 'error', error: { name, value, traceback: 'long' } }),
        session('s')
      );
    expect(words('KeyError', "'q5'")).toBe("KeyError: 'q5'");
    expect(words('ValueError', 'one\ntwo')).toBe('ValueError: one');
    expect(words('E', '\u202Eevil')).toBe('E: ‹U+202E›evil');
    expect(words('KeyboardInterrupt', '')).toBe('KeyboardInterrupt');
  });

  it('say what a session waits for, and how its last execution ended', () => {
    const asking = session('s', { state: 'busy', waits_for: 'input', last_outcome: 'timeout' });
    expect(standingWords(trans, asking)).toBe('waits for input');
    expect(executionWords(trans, execution('e', { state: 'running' }), asking)).toBe('waits for input');
    expect(executionWords(trans, execution('e', { state: 'queued' }), asking)).toBe('queued');
    const outcomes = [null, 'ok', 'timeout', 'error: KeyError', 'error: ok', 'of a newer server'];
    expect(outcomes.map(last_outcome => lastOutcomeWords(trans, session('s', { last_outcome })))).toEqual([
      null,
      null,
      'timed out',
      'KeyError',
      'ok',
      'of a newer server'
    ]);
    expect(lastOutcomeWords(trans, asking)).toBeNull();
  });

  it('name the kinds of code that are approved for a session', () => {
    const kinds = ['shell', 'import a.b', 'new import c', 'always', 'import \u202E'];
    expect(kinds.map(kind => kindWords(trans, kind))).toEqual([
      'shell commands',
      'imports of a.b',
      'imports of c',
      'everything',
      'imports of ‹U+202E›'
    ]);
  });
});

describe('names', () => {
  it('are such as every file system takes', () => {
    expect(notebookName('../etc/pass wd: é漢', 'ses_12345678')).toBe('etc-pass-wd-é漢.ipynb');
    expect(notebookName('', 'ses_123456789')).toBe('session-12345678.ipynb');
    expect(notebookName('', 'ses_w2_123456789')).toBe('session-12345678.ipynb');
    expect(downloadName('a/b\u202Egnp.exe')).toBe('b_gnp.exe');
    expect(downloadName('dir/')).toBe('download');
  });

  it('are tried one after the other', () => {
    expect(notebookPaths('dir/a.ipynb ').slice(0, 3)).toEqual([
      'dir/a.ipynb',
      'dir/a-2.ipynb',
      'dir/a-3.ipynb'
    ]);
  });
});
