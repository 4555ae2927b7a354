//! Address policy: the IP addresses a host may resolve to.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::WebError;

/// Maximum number of addresses considered per name.
const MAX_ADDRESSES: usize = 64;

/// Suffixes that no public service uses.
const PRIVATE_SUFFIXES: [&str; 8] =
    [".corp", ".home", ".home.arpa", ".internal", ".intranet", ".lan", ".local", ".private"];

/// Addresses that requests to a service may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NetworkAccess {
    /// Public addresses only, for a host that a document names and not the configuration.
    Public,
    /// Derived from the host name: a public name resolves to public addresses only; `localhost`, names
    /// without a dot and names such as `wiki.internal` may resolve to private ones.
    #[default]
    ByName,
    /// Private addresses are allowed for any name.
    Private,
}

/// Resolver for host names.
#[derive(Clone)]
pub struct HostResolver(Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>);

impl HostResolver {
    /// Returns the resolver of the system.
    pub fn system() -> Self {
        Self::new(|host| {
            async move {
                let found = tokio::net::lookup_host((host, 0)).await?;
                Ok(found.map(|address| address.ip()).take(MAX_ADDRESSES).collect())
            }
            .boxed()
        })
    }

    /// Creates a resolver from a function.
    pub fn new(
        find: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(find))
    }
}

/// Host with the addresses it may resolve to.
#[derive(Debug)]
pub(crate) struct HostPolicy {
    host: String,
    scope: AddressScope,
}

/// Host of a URL, by what its spelling says about where it is. Every decision about hosts is made from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostKind {
    /// An IP address, in any spelling.
    Address(IpAddr),
    /// `localhost`, or a name below it.
    Loopback,
    /// A name without a dot, or with a suffix that no public service uses.
    Private,
    /// A name that may be public. The addresses that it resolves to decide.
    Name,
}

impl HostKind {
    /// Classifies the host of a URL; `None` if it has none.
    ///
    /// The URL parser has already decoded, mapped (IDNA) and lowercased the host, and recognized an IPv4 address in
    /// decimal, octal and hexadecimal spellings.
    fn of(url: &Url) -> Option<Self> {
        match url.domain() {
            Some(name) => Some(Self::of_name(name.trim_end_matches('.'))),
            None => url.host_str()?.trim_matches(['[', ']']).parse().ok().map(Self::Address),
        }
    }

    fn of_name(name: &str) -> Self {
        let is_private = !name.contains('.') || PRIVATE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
        match name {
            _ if name == "localhost" || name.ends_with(".localhost") => Self::Loopback,
            _ if is_private => Self::Private,
            _ => Self::Name,
        }
    }

    /// Returns `true` unless the spelling says that the host is on this machine or in a private network.
    fn may_be_public(self) -> bool {
        match self {
            Self::Address(address) => classify(address) == AddressClass::Public,
            Self::Loopback | Self::Private => false,
            Self::Name => true,
        }
    }
}

/// Returns `true` unless a URL is evidently on this machine or in a private network. The addresses that its host
/// resolves to are checked with each connection.
pub fn may_be_public(url: &Url) -> bool {
    HostKind::of(url).is_some_and(HostKind::may_be_public)
}

/// Returns `true` if a URL is evidently on this machine.
pub fn is_loopback(url: &Url) -> bool {
    match HostKind::of(url) {
        Some(HostKind::Address(address)) => classify(address) == AddressClass::Loopback,
        Some(HostKind::Loopback) => true,
        Some(HostKind::Private | HostKind::Name) | None => false,
    }
}

/// Removes the dots at the end of a host name: with and without them it is the same host, but another origin.
pub fn without_trailing_dot(mut url: Url) -> Url {
    let name = url.domain().and_then(|name| Some(name.strip_suffix('.')?.trim_end_matches('.').to_owned()));
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        // A name without its final dot is as valid as with it.
        let _ = url.set_host(Some(&name));
    }
    url
}

/// Addresses a host may resolve to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressScope {
    /// The host is an IP address; there is nothing to resolve.
    Literal,
    /// Loopback addresses.
    Loopback,
    /// Public, private and loopback addresses.
    Private,
    /// Public addresses.
    Public,
    /// Public addresses, for a host that no configuration names.
    Unconfigured,
}

impl HostPolicy {
    pub(crate) fn new(base: &Url, network: NetworkAccess) -> Result<Self, WebError> {
        let not_web = || WebError::UnsupportedScheme { scheme: base.scheme().to_owned() };
        let kind = HostKind::of(base).ok_or_else(not_web)?;
        let host = base.host_str().unwrap_or_default().trim_end_matches('.').to_owned();
        let scope = match (network, kind) {
            (NetworkAccess::Public, kind) if kind.may_be_public() => AddressScope::Unconfigured,
            (NetworkAccess::Public, _) => return Err(WebError::HostNotAllowed { host }),
            (_, HostKind::Address(_)) => AddressScope::Literal,
            (_, HostKind::Loopback) => AddressScope::Loopback,
            (NetworkAccess::Private, _) | (_, HostKind::Private) => AddressScope::Private,
            (NetworkAccess::ByName, HostKind::Name) => AddressScope::Public,
        };
        Ok(Self { host, scope })
    }

    /// Returns the allowed addresses, or an error if there are none.
    fn allowed(&self, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, WebError> {
        let first = found.first().copied();
        let allowed: Vec<_> =
            found.into_iter().filter(|address| self.scope.allows(classify(*address))).collect();
        match first {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(address) => {
                let (host, class) = (self.host.clone(), classify(address));
                Err(WebError::AddressNotAllowed {
                    host,
                    address,
                    what: class.describe(),
                    fix: self.scope.fix(class),
                })
            }
            None => Err(WebError::NotFound { host: self.host.clone(), problem: "no addresses".to_owned() }),
        }
    }
}

impl AddressScope {
    fn allows(self, class: AddressClass) -> bool {
        match self {
            Self::Literal => true,
            Self::Loopback => class == AddressClass::Loopback,
            Self::Private => {
                matches!(class, AddressClass::Public | AddressClass::Private | AddressClass::Loopback)
            }
            Self::Public | Self::Unconfigured => class == AddressClass::Public,
        }
    }

    fn fix(self, class: AddressClass) -> &'static str {
        match (self, class) {
            (Self::Public, AddressClass::Private | AddressClass::Loopback) => {
                "set allowPrivateNetwork to true"
            }
            (Self::Unconfigured, _) => "name the host in the configuration",
            _ => "use the IP address in the URL",
        }
    }
}

/// Resolver that applies the policy, so that the checked addresses are those connected to.
pub(crate) struct CheckedResolver {
    pub(crate) host_policy: Arc<HostPolicy>,
    pub(crate) resolver: HostResolver,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (host_policy, resolver) = (Arc::clone(&self.host_policy), self.resolver.clone());
        Box::pin(async move {
            let host = host_policy.host.clone();
            let found = (resolver.0)(name.as_str().to_owned()).await.map_err(|error| {
                AddressPolicyError(WebError::NotFound { host, problem: error.to_string() })
            })?;
            let allowed = host_policy.allowed(found).map_err(AddressPolicyError)?;
            // Port 0 is replaced by the port of the URL.
            Ok(Box::new(allowed.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs)
        })
    }
}

/// Error of the policy, carried through the errors of the HTTP client.
#[derive(Debug)]
pub(crate) struct AddressPolicyError(pub(crate) WebError);

impl fmt::Display for AddressPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for AddressPolicyError {}

/// Class of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressClass {
    Public,
    Private,
    Loopback,
    /// Link-local, including cloud metadata services.
    LinkLocal,
    /// Unspecified, multicast, broadcast and reserved.
    Special,
}

impl AddressClass {
    fn describe(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Private => "a private address",
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Special => "a reserved address",
        }
    }
}

fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        // Benchmarking, documentation, protocol assignments, and the former 6to4 relay.
        [0 | 224..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressClass::Special,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let segments = address.segments();
    let v4 = |at: usize| {
        let ([a, b], [c, d]) = (segments[at].to_be_bytes(), segments[at + 1].to_be_bytes());
        classify_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        _ if address.is_loopback() => AddressClass::Loopback,
        // Embedded IPv4 addresses: mapped, compatible, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            v4(6)
        }
        [0x2002, ..] => v4(1),
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        // Teredo and documentation; then site-local, multicast, discard and unassigned.
        [0x2001, 0 | 0xdb8, ..] => AddressClass::Special,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, network: NetworkAccess, found: &str) -> Result<(), String> {
        let host_policy = HostPolicy::new(&base.parse().unwrap(), network).unwrap();
        host_policy.allowed(vec![found.parse().unwrap()]).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_public_name_resolves_to_public_addresses_only() {
        for public in ["93.184.215.14", "2606:2800:21f:cb07::1", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14"]
        {
            assert_eq!(check("https://api.example.org", NetworkAccess::ByName, public), Ok(()), "{public}");
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
            assert!(check("https://api.example.org", NetworkAccess::ByName, hidden).is_err(), "{hidden}");
        }
    }

    #[test]
    fn the_name_decides_the_allowed_addresses() {
        use NetworkAccess::{ByName, Private};
        let cases = [
            ("http://localhost:1", ByName, "127.0.0.1", true),
            ("http://api.localhost.", ByName, "::1", true),
            ("http://localhost", ByName, "10.0.0.1", false),
            ("http://wiki", ByName, "10.0.0.1", true),
            ("http://wiki.internal", ByName, "fd00::1", true),
            ("http://metadata.internal", ByName, "169.254.169.254", false),
            ("http://api.example.org", Private, "10.0.0.1", true),
            ("http://api.example.org", Private, "127.0.0.1", true),
            ("http://api.example.org", Private, "169.254.169.254", false),
            ("http://notlocalhost.org", ByName, "127.0.0.1", false),
            ("http://internal.example.org", ByName, "10.0.0.1", false),
        ];
        for (base, network, found, may) in cases {
            assert_eq!(check(base, network, found).is_ok(), may, "{base} at {found}");
        }
    }

    /// Spellings of hosts; `true` if they may be public.
    const HOSTS: [(&str, bool); 46] = [
        // Loopback addresses: dotted, decimal, octal, hexadecimal, short, encoded, full-width.
        ("127.0.0.1", false),
        ("2130706433", false),
        ("0177.0.0.1", false),
        ("017700000001", false),
        ("0x7f.0.0.1", false),
        ("0X7F000001", false),
        ("127.1", false),
        ("127.0.0.1.", false),
        ("%31%32%37.0.0.1", false),
        ("１２７.0.0.1", false),
        ("127。0。0。1", false),
        ("[::1]", false),
        ("[0:0:0:0:0:0:0:1]", false),
        ("[::ffff:127.0.0.1]", false),
        ("[::FFFF:7F00:1]", false),
        ("[::127.0.0.1]", false),
        ("[64:ff9b::7f00:1]", false),
        ("[2002:7f00:1::]", false),
        // Private, link-local and reserved addresses.
        ("10.0.0.1", false),
        ("167772161", false),
        ("0xA9FEA9FE", false),
        ("169.254.169.254", false),
        ("[::ffff:169.254.169.254]", false),
        ("[fe80::1]", false),
        ("[fd00::1]", false),
        ("0.0.0.0", false),
        ("0", false),
        // Names.
        ("localhost", false),
        ("localhost.", false),
        ("LOCALHOST", false),
        ("api.localhost", false),
        ("ⓛocalhost", false),
        ("loc%61lhost", false),
        ("router", false),
        ("router.", false),
        ("nas.lan", false),
        ("NAS.Lan.", false),
        ("printer.local", false),
        ("wiki.internal", false),
        ("wiki。internal", false),
        ("xn--bcher-kva", false),
        // Public ones.
        ("93.184.215.14", true),
        ("[2606:2800:21f:cb07::1]", true),
        ("api.example.org", true),
        ("API.Example.ORG.", true),
        ("bücher.example", true),
    ];

    #[test]
    fn every_spelling_of_a_host_is_classified_alike_everywhere() {
        for (host, expected) in HOSTS {
            for url in [format!("http://{host}:8080/x"), format!("https://user:pw@{host}/")] {
                let url: Url = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));
                assert_eq!(may_be_public(&url), expected, "{url}");
                // The policy of connections agrees: it refuses the host, or all of its private addresses.
                let policy = HostPolicy::new(&url, NetworkAccess::Public);
                assert_eq!(policy.is_ok(), expected, "{url}");
                if let Ok(policy) = policy {
                    for private in ["127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "169.254.169.254"] {
                        assert!(policy.allowed(vec![private.parse().unwrap()]).is_err(), "{url}");
                    }
                }
                let trimmed = without_trailing_dot(url.clone());
                assert!(!trimmed.host_str().unwrap().ends_with('.'), "{url}");
                assert_eq!(may_be_public(&trimmed), expected, "{url}");
            }
        }
    }

    #[test]
    fn the_host_of_a_url_with_userinfo_is_what_follows_it() {
        for (url, expected) in [
            ("http://api.example.org@127.0.0.1/", false),
            ("http://api.example.org:80@localhost/", false),
            ("http://127.0.0.1@api.example.org/", true),
            ("http://localhost\\@api.example.org/", false),
            ("http://api.example.org#@localhost/", true),
        ] {
            assert_eq!(may_be_public(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn a_trailing_dot_is_trimmed_from_names_only() {
        for (url, expected) in [
            ("https://api.example.org./v1?q#f", "https://api.example.org/v1?q#f"),
            ("http://localhost.:8080/", "http://localhost:8080/"),
            ("https://api.example.org/v1.", "https://api.example.org/v1."),
            ("http://[::1]/", "http://[::1]/"),
            ("http://127.0.0.1./", "http://127.0.0.1/"),
        ] {
            assert_eq!(without_trailing_dot(url.parse().unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn only_allowed_addresses_are_used() {
        let host_policy =
            HostPolicy::new(&"https://api.example.org".parse().unwrap(), NetworkAccess::ByName).unwrap();
        let found = ["10.0.0.1", "93.184.215.14", "::1"].map(|address| address.parse().unwrap());
        let allowed = host_policy.allowed(found.to_vec()).unwrap();
        assert_eq!(allowed, ["93.184.215.14".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_refused_address_is_reported_with_a_fix() {
        insta::assert_snapshot!(
            check("https://api.example.org/x?key=secret", NetworkAccess::ByName, "10.0.0.7").unwrap_err(),
            @"api.example.org resolves to 10.0.0.7, a private address: request not sent. To allow it, set allowPrivateNetwork to true"
        );
        insta::assert_snapshot!(
            check("https://api.example.org/x?key=secret", NetworkAccess::Public, "10.0.0.7").unwrap_err(),
            @"api.example.org resolves to 10.0.0.7, a private address: request not sent. To allow it, name the host in the configuration"
        );
        let refused =
            HostPolicy::new(&"http://nas.lan./x?key=secret".parse().unwrap(), NetworkAccess::Public);
        insta::assert_snapshot!(
            refused.unwrap_err(),
            @"nas.lan is not a public host: request not sent. To allow it, name the host in the configuration"
        );
    }
}
