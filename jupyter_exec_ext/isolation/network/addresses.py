"""Classification of addresses: which are public, and which special range holds each of the others. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Not `Address.is_global`: its answers differ between versions of Python. Narrow ranges come before wide ones.
# https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
_SPECIAL = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's agent and name service, in a public range
        *("::/128", "::1/128", "::/8", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20"),
        *("5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_NAT64, _6TO4 = IPv6Network("64:ff9b::/96"), IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)


def unwrap_mapped(address: Address) -> Address:
    """Return the IPv4 address inside of an IPv4-mapped one, since the system connects to that; others unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def special_range(address: Address) -> Network | None:
    """Return the range that makes an address not public; None for a public address.

    Parameters
    ----------
    address : IPv4Address or IPv6Address
        Address to connect to. Forms that hold an IPv4 address (mapped, NAT64, 6to4) are as public as that.

    Returns
    -------
    IPv4Network, IPv6Network or None
        A rule has to name this range or a part of it to open the address.
    """
    address = unwrap_mapped(address)
    if isinstance(address, IPv6Address):
        for wrapping, shift in ((_NAT64, 0), (_6TO4, 80)):
            if address in wrapping:
                return wrapping if special_range(IPv4Address(int(address) >> shift & 0xFFFFFFFF)) else None
        if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
            return IPv6Network((int(address), 96), strict=False)
    for network in _SPECIAL:
        if address.version == network.version and address in network:
            return network
    if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
        return IPv6Network((int(address), 16), strict=False)  # not assigned to anyone
    return None
