"""Mounts and devices of policies: how they are written, mistakes, and narrower limits of tokens."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_exec_ext.auth.policy import Policy
from jupyter_exec_ext.auth.policy_parsing import policy_to_json, read_limits, read_policies
from jupyter_exec_ext.engine.access.policy_grants import GRANTS_VARIABLE, grants_within
from jupyter_exec_ext.errors import InvalidRequest, TokenTooBroad

MOUNTS = {"/data": "/srv/datasets", "/models": "/srv/models"}


def _policy(**fields: Any) -> Policy:
    return read_policies({"net": {"isolation": "sandbox", **fields}})["net"]


@pytest.mark.parametrize(
    ("mounts", "problem"),
    [
        (["/data"], "object"),
        ({"data": "/srv"}, "absolute path"),
        ({"/data": "srv"}, "absolute path"),
        ({"/data": "/srv/../etc"}, "absolute path"),
        ({"/data/": "/srv"}, "absolute path"),
        ({"//data": "/srv"}, "absolute path"),
        ({"/data\n": "/srv"}, "absolute path"),
        ({"/data": 1}, "object"),
        ({"/": "/srv"}, "overlaps"),
        ({"/usr/share/data": "/srv"}, "overlaps with '/usr'"),
        ({"/mnt": "/srv"}, "overlaps with '/mnt/data'"),
        ({"/proc": "/srv"}, "overlaps"),
        ({"/work": "/srv"}, "overlaps"),
        ({"/data": "/srv/a", "/data/b": "/srv/b"}, "overlaps"),
        ({f"/d{n}": "/srv" for n in range(101)}, "at most 100"),
    ],
)
def test_mount_that_is_not_written_as_it_must_be_is_a_mistake(mounts: Any, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        _policy(mounts=mounts)


@pytest.mark.parametrize(
    "device",
    ["nvidia", "nvidia:x", "gpu", 1, "/etc/passwd", "/dev", "/dev/../etc", "/dev/mem", "/dev/pts/0", "/dev/tty1"],
)
def test_device_that_is_unknown_or_opens_the_machine_is_a_mistake(device: Any) -> None:
    with pytest.raises(InvalidRequest, match="'devices'"):
        _policy(devices=[device])


_OF_THE_MACHINE = (
    *("kmsg", "oldmem", "cpu/0/msr", "userfaultfd", "vfio/vfio", "vfio/12", "uio0", "mei0", "ipmi0", "tpmrm0", "cuse"),
    *("sg0", "bsg/0:0:0:0", "nvme0", "nvme-fabrics", "ng0n1", "mtd0", "mtd0ro", "raw/raw1", "rawctl", "st0", "nst0a"),
    *("mapper/control", "loop-control", "sda1", "vdb", "mmcblk0rpmb", "dm-0", "zfs", "megaraid_sas_ioctl_node"),
    *("ttyS0", "ttyUSB0", "tty", "hvc0", "vcsa1", "vport0p1", "console", "ptmx"),
    *("input/event0", "uinput", "hidraw0", "fb0", "bus/usb/001/002", "usbmon0", "net/tun", "tap3", "ipvtap3", "ppp"),
)


@pytest.mark.parametrize("name", _OF_THE_MACHINE)
def test_device_with_memory_disks_terminals_input_or_networks_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be shared"):
        _policy(devices=[f"/dev/{name}"])


def test_accelerators_and_harmless_devices_are_accepted() -> None:
    names = [
        *(
            "nvidia0",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia-caps/nvidia-cap1",
            "dri/renderD128",
            "kfd",
            "accel/accel0",
            "dxg",
        ),
        *(
            "davinci0",
            "hisi_hdc",
            "neuron0",
            "apex_0",
            "habanalabs/hl0",
            "kvm",
            "fuse",
            "video0",
            "snd/pcmC0D0c",
            "hwrng",
        ),
        *("null", "zero", "full", "random", "urandom", "usbtmc0", "comedi0", "usb/lp0", "infiniband/uverbs0"),
    ]
    assert len(_policy(devices=["nvidia:0", "dri", *(f"/dev/{name}" for name in names)]).devices) == len(names) + 2


@pytest.mark.parametrize("field", [{"mounts": MOUNTS}, {"devices": ["dri"]}])
@pytest.mark.parametrize("isolation", ["none", "landlock", "remote"])
def test_grants_without_a_sandbox_are_a_mistake(field: dict[str, Any], isolation: str) -> None:
    with pytest.raises(InvalidRequest, match=f"needs the isolation 'sandbox', and this policy has '{isolation}'"):
        _policy(**field, isolation=isolation)


def test_limits_of_a_token_narrow_grants_and_never_widen_them() -> None:
    outer = _policy(mounts=MOUNTS, devices=["nvidia:0", "dri"])
    assert policy_to_json(outer)["mounts"] == MOUNTS
    assert read_limits({"mounts": {"/data": "/srv/datasets"}}, outer).mounts == (("/data", "/srv/datasets"),)
    assert read_limits({"mounts": {}, "devices": ["dri"]}, outer).devices == ("dri",)
    for limits in ({"mounts": {"/data": "/srv"}}, {"mounts": {"/other": "/srv/datasets"}}, {"devices": ["nvidia:1"]}):
        with pytest.raises(TokenTooBroad):
            read_limits(limits, outer)


def test_session_gets_what_all_policies_grant() -> None:
    wide = _policy(mounts=MOUNTS, devices=["nvidia:0", "dri"])
    narrow = _policy(mounts={"/data": "/srv/datasets", "/models": "/srv/others"}, devices=["dri"])
    value = '{"devices": ["dri"], "mounts": {"/data": "/srv/datasets"}}'
    assert grants_within([wide, narrow]) == {GRANTS_VARIABLE: value}
    assert grants_within([wide, Policy()]) == grants_within([]) == {}
