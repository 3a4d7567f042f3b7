/** The section on what agents may do here: isolation, the policy in force, the server's limits. */

import * as React from 'react';

import type { IInfo, IPolicy } from '../api/types';
import { isAlive } from '../model/view';
import { oneLine } from '../safety/text';
import { limitName, limitValue } from './limits';
import { NotConnected } from './notConnected';
import { type ISection, SectionWidget } from './section';
import { useExecState, useServices } from './services';
import { isolationMeaning, isolationWords } from '../words';

export const policySection: ISection = {
  id: 'jupyter-exec-ext-policy',
  title: trans => trans.__('Isolation and limits'),
  collapsed: true,
  create: services => new SectionWidget(policySection, services, <PolicyView />)
};

function PolicyView(): React.ReactElement {
  const { trans } = useServices();
  const { info, sessions } = useExecState();
  if (info === null) {
    return <NotConnected />;
  }
  const open = [...sessions.values()].filter(each => isAlive(each) && each.isolation === 'none').length;
  return (
    // It has nothing else to hold the focus, and keys scroll only what has it.
    <div className="jex-Policy" role="group" aria-label={trans.__('Isolation and limits')} tabIndex={0}>
      <Warnings info={info} openSessions={open} />
      <h3>{trans.__('Kernels')}</h3>
      <dl className="jex-Facts">
        {info.kernelspecs.map(spec => (
          <React.Fragment key={spec.name}>
            <dt className="jex-Ellipsis" title={oneLine(spec.display_name)}>
              {oneLine(spec.name, 80)}
            </dt>
            <dd
              className={spec.isolation === 'none' ? 'jex-Warn' : ''}
              title={isolationMeaning(trans, spec.isolation)}
            >
              {isolationWords(trans, spec.isolation)}
              {spec.host_network ? ` (${trans.__('network of this machine')})` : ''}
            </dd>
          </React.Fragment>
        ))}
      </dl>
      {info.policies.map(policy => (
        <PolicyFacts key={policy.name} policy={policy} />
      ))}
      <h3>{trans.__('Server limits')}</h3>
      <Facts facts={info.limits} none={0} />
      <p className="jex-Hint">
        {trans.__('jupyter_exec_ext %1 in %2 %3', info.version, info.host, info.host_version)}
      </p>
    </div>
  );
}

function Warnings(props: { info: IInfo; openSessions: number }): React.ReactElement | null {
  const { trans } = useServices();
  const { info, openSessions } = props;
  const warnings: string[] = [];
  if (info.trouble) {
    warnings.push(oneLine(info.trouble, 1000));
  }
  if (openSessions > 0) {
    warnings.push(
      trans._n(
        'One session is not isolated: its code has all rights of the user who runs this server.',
        '%1 sessions are not isolated: their code has all rights of the user who runs this server.',
        openSessions
      )
    );
  }
  if (info.unprotected_tokens) {
    warnings.push(trans.__('Tokens may use kernels without isolation (allow_unprotected_tokens is set).'));
  }
  if (warnings.length === 0) {
    return null;
  }
  return (
    <ul className="jex-Warnings" aria-label={trans.__('Warnings')}>
      {warnings.map(warning => (
        <li key={warning}>{warning}</li>
      ))}
    </ul>
  );
}

function PolicyFacts({ policy }: { policy: IPolicy }): React.ReactElement {
  const { trans } = useServices();
  const { name, ...rest } = policy;
  return (
    <>
      <h3>{trans.__('Policy %1', oneLine(name, 80))}</h3>
      <Facts facts={rest} none={null} />
    </>
  );
}

/** Limits in words; tooltips have the configuration's names and exact values, for administrators. */
function Facts(props: { facts: { readonly [name: string]: unknown }; none: unknown }): React.ReactElement {
  const { trans } = useServices();
  return (
    <dl className="jex-Facts">
      {Object.entries(props.facts).map(([name, value]) => (
        <React.Fragment key={name}>
          <dt title={oneLine(name, 80)}>{limitName(trans, name)}</dt>
          <dd title={oneLine(JSON.stringify(value), 500)}>{limitValue(trans, name, value, props.none)}</dd>
        </React.Fragment>
      ))}
    </dl>
  );
}
