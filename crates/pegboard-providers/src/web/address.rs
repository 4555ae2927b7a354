//! Which addresses a service may be at.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::WebError;

/// How many addresses of one name are looked at.
const MAX_ADDRESSES: usize = 64;

/// Names that no public service has.
const PRIVATE_ENDINGS: [&str; 8] =
    [".corp", ".home", ".home.arpa", ".internal", ".intranet", ".lan", ".local", ".private"];

/// Whether a service may be in a private network although its name does not say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// A name that could be public leads to public addresses only. `localhost`, names without a dot and names such as
    /// `wiki.internal` may lead to private ones.
    #[default]
    AsNamed,
    /// It may be in a private network.
    Private,
}

/// How the addresses of a host are found.
#[derive(Clone)]
pub struct Lookup(Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>);

impl Lookup {
    /// As the system does.
    pub fn system() -> Self {
        Self::new(|host| {
            async move {
                let found = tokio::net::lookup_host((host, 0)).await?;
                Ok(found.map(|address| address.ip()).take(MAX_ADDRESSES).collect())
            }
            .boxed()
        })
    }

    /// By a function.
    pub fn new(
        find: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(find))
    }
}

/// A host, and what its name may lead to.
#[derive(Debug)]
pub(super) struct Destination {
    host: String,
    reach: Reach,
}

/// What a name may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The address was written down, so nothing has to be found.
    Written,
    /// This machine.
    Loopback,
    /// Everything that one service can be at, in private networks too.
    Private,
    /// What everybody can reach.
    Public,
}

impl Destination {
    pub(super) fn new(base: &Url, network: Network) -> Result<Self, WebError> {
        let not_web = || WebError::NotWeb { scheme: base.scheme().to_owned() };
        let host = base.host_str().ok_or_else(not_web)?.trim_end_matches('.').to_ascii_lowercase();
        let reach = match base.domain() {
            None => Reach::Written,
            Some(_) if host == "localhost" || host.ends_with(".localhost") => Reach::Loopback,
            Some(_) if network == Network::Private || has_private_name(&host) => Reach::Private,
            Some(_) => Reach::Public,
        };
        Ok(Self { host, reach })
    }

    /// The addresses that may be used, or why there are none.
    fn allowed(&self, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, WebError> {
        let first = found.first().copied();
        let allowed: Vec<_> = found.into_iter().filter(|address| self.reach.may_be(sort(*address))).collect();
        match first {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(address) => {
                let (host, sort) = (self.host.clone(), sort(address));
                Err(WebError::Forbidden { host, address, what: sort.describe(), fix: self.reach.fix(sort) })
            }
            None => {
                Err(WebError::NotFound { host: self.host.clone(), problem: "it has no address".to_owned() })
            }
        }
    }
}

impl Reach {
    fn may_be(self, sort: Sort) -> bool {
        match self {
            Self::Written => true,
            Self::Loopback => sort == Sort::Loopback,
            Self::Private => matches!(sort, Sort::Public | Sort::Private | Sort::Loopback),
            Self::Public => sort == Sort::Public,
        }
    }

    fn fix(self, sort: Sort) -> &'static str {
        match (self, sort) {
            (Self::Public, Sort::Private | Sort::Loopback) => "set allowPrivateNetwork to true",
            _ => "write the address itself",
        }
    }
}

fn has_private_name(host: &str) -> bool {
    !host.contains('.') || PRIVATE_ENDINGS.iter().any(|ending| host.ends_with(ending))
}

/// Finds addresses for connections, so that what was checked is what is connected to.
pub(super) struct Guide {
    pub(super) destination: Arc<Destination>,
    pub(super) lookup: Lookup,
}

impl Resolve for Guide {
    fn resolve(&self, name: Name) -> Resolving {
        let (destination, lookup) = (Arc::clone(&self.destination), self.lookup.clone());
        Box::pin(async move {
            let host = destination.host.clone();
            let found = (lookup.0)(name.as_str().to_owned())
                .await
                .map_err(|error| Refused(WebError::NotFound { host, problem: error.to_string() }))?;
            let allowed = destination.allowed(found).map_err(Refused)?;
            // The port of the address that was asked for takes the place of 0.
            Ok(Box::new(allowed.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

/// Our own verdict, on its way through the network's errors.
#[derive(Debug)]
pub(super) struct Refused(pub(super) WebError);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Refused {}

/// What sort of address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Public,
    Private,
    Loopback,
    /// Only on this cable, where clouds keep the secrets of a machine.
    LinkLocal,
    /// Nobody, everybody, or kept for something else.
    Special,
}

impl Sort {
    fn describe(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Private => "in a private network",
            Self::Loopback => "this machine",
            Self::LinkLocal => "a link-local address",
            Self::Special => "no address of one machine",
        }
    }
}

fn sort(address: IpAddr) -> Sort {
    match address {
        IpAddr::V4(address) => sort_v4(address),
        IpAddr::V6(address) => sort_v6(address),
    }
}

fn sort_v4(address: Ipv4Addr) -> Sort {
    match address.octets() {
        [127, ..] => Sort::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Sort::Private,
        [169, 254, ..] => Sort::LinkLocal,
        // Benchmarks, documentation, protocol assignments, and the old relay of 6to4.
        [0 | 224..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Sort::Special,
        _ => Sort::Public,
    }
}

fn sort_v6(address: Ipv6Addr) -> Sort {
    let segments = address.segments();
    let v4 = |at: usize| {
        let ([a, b], [c, d]) = (segments[at].to_be_bytes(), segments[at + 1].to_be_bytes());
        sort_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        _ if address.is_loopback() => Sort::Loopback,
        // An IPv4 address in another dress: mapped, compatible, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            v4(6)
        }
        [0x2002, ..] => v4(1),
        [0xfc00..=0xfdff, ..] => Sort::Private,
        [0xfe80..=0xfebf, ..] => Sort::LinkLocal,
        // Teredo and documentation; then site-local, multicast, discard, and what else is not handed out.
        [0x2001, 0 | 0xdb8, ..] => Sort::Special,
        [0x2000..=0x3fff, ..] => Sort::Public,
        _ => Sort::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, network: Network, found: &str) -> Result<(), String> {
        let destination = Destination::new(&base.parse().unwrap(), network).unwrap();
        destination.allowed(vec![found.parse().unwrap()]).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_public_name_leads_to_public_addresses_only() {
        for public in ["93.184.215.14", "2606:2800:21f:cb07::1", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14"]
        {
            assert_eq!(check("https://api.example.org", Network::AsNamed, public), Ok(()), "{public}");
        }
        for hidden in [
            "127.0.0.1",
            "127.8.8.8",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "192.0.0.1",
            "240.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "fd00:ec2::254",
            "fc00::1",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "100::1",
            "64:ff9b:1::1",
        ] {
            assert!(check("https://api.example.org", Network::AsNamed, hidden).is_err(), "{hidden}");
        }
    }

    #[test]
    fn a_name_leads_as_far_as_it_says() {
        use Network::{AsNamed, Private};
        let cases = [
            ("http://localhost:1", AsNamed, "127.0.0.1", true),
            ("http://api.localhost.", AsNamed, "::1", true),
            ("http://localhost", AsNamed, "10.0.0.1", false),
            ("http://wiki", AsNamed, "10.0.0.1", true),
            ("http://wiki.internal", AsNamed, "fd00::1", true),
            ("http://metadata.internal", AsNamed, "169.254.169.254", false),
            ("http://api.example.org", Private, "10.0.0.1", true),
            ("http://api.example.org", Private, "127.0.0.1", true),
            ("http://api.example.org", Private, "169.254.169.254", false),
            ("http://notlocalhost.org", AsNamed, "127.0.0.1", false),
            ("http://internal.example.org", AsNamed, "10.0.0.1", false),
        ];
        for (base, network, found, may) in cases {
            assert_eq!(check(base, network, found).is_ok(), may, "{base} at {found}");
        }
    }

    #[test]
    fn of_several_addresses_only_the_allowed_are_used() {
        let destination =
            Destination::new(&"https://api.example.org".parse().unwrap(), Network::AsNamed).unwrap();
        let found = ["10.0.0.1", "93.184.215.14", "::1"].map(|address| address.parse().unwrap());
        let allowed = destination.allowed(found.to_vec()).unwrap();
        assert_eq!(allowed, ["93.184.215.14".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_refusal_says_where_the_name_leads_and_what_to_do() {
        insta::assert_snapshot!(
            check("https://api.example.org/x?key=secret", Network::AsNamed, "10.0.0.7").unwrap_err(),
            @"api.example.org leads to 10.0.0.7, which is in a private network, so nothing was sent. If that is meant, set allowPrivateNetwork to true"
        );
    }
}
