"""Addresses: which are public, also inside of other forms."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_exec_ext.isolation.network.addresses import special_range, unwrap_mapped

PUBLIC = "1.1.1.1 8.8.8.8 93.184.215.14 100.63.255.255 100.128.0.0 172.15.0.1 172.32.0.1 192.167.1.1 2606:4700::1111 \
    2a00:1450:4001:82a::200e 64:ff9b::8.8.8.8 2002:0808:0808::1 ::ffff:8.8.8.8"
SPECIAL = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.255 169.254.0.1 169.254.169.254 \
    172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 \
    203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 :: ::1 ::127.0.0.1 ::2 \
    ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::1 \
    2002:7f00:1:: 2002:a9fe:a9fe:: 2002:0a00:0001::5 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 \
    3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 4000::1 2606:4700::5efe:10.0.0.1"


@pytest.mark.parametrize("text", PUBLIC.split())
def test_public_address_has_no_special_range(text: str) -> None:
    assert special_range(ip_address(text)) is None


@pytest.mark.parametrize("text", SPECIAL.split())
def test_other_address_is_in_its_special_range(text: str) -> None:
    found = special_range(ip_address(text))
    assert found is not None
    assert unwrap_mapped(ip_address(text)) in found


@given(st.integers(0, 2**32 - 1))
def test_address_inside_of_another_form_is_as_public_as_itself(number: int) -> None:
    plain = special_range(IPv4Address(number)) is None
    for wrapped in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
        assert (special_range(IPv6Address(wrapped)) is None) == plain


@given(st.integers(0, 2**32 - 1))
def test_private_address_of_the_standard_library_is_special(number: int) -> None:
    address = IPv4Address(number)
    if address.is_private or address.is_multicast or address.is_reserved:
        assert special_range(address) is not None or address in special_exceptions()


def special_exceptions() -> list[IPv4Address]:
    return [IPv4Address(f"192.0.0.{last}") for last in (9, 10)]
