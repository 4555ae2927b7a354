//! The connection that a request arrived on, and the user at its other end.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpStream;

/// Connection of a client. Clones share it, and every request that passes the router has one as an extension.
#[derive(Clone, Debug, Default)]
pub struct ServedConnection(Arc<ConnectionFacts>);

#[derive(Debug, Default)]
struct ConnectionFacts {
    /// Our address and that of the client, unless it is no TCP connection.
    addresses: Option<(SocketAddr, SocketAddr)>,
    is_same_user: OnceLock<bool>,
}

impl ServedConnection {
    pub(super) fn new(stream: &TcpStream) -> Self {
        let addresses = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
        Self(Arc::new(ConnectionFacts { addresses: addresses.ok(), is_same_user: OnceLock::new() }))
    }

    /// Returns `true` if the client is a process on this machine that runs as the user of this process. `false` if
    /// the system cannot tell.
    ///
    /// The system is asked once per connection, which takes some microseconds and never waits.
    pub fn is_same_user(&self) -> bool {
        *self.0.is_same_user.get_or_init(|| {
            let user = self.0.addresses.and_then(|(local, client)| platform::user_of(local, client));
            user.is_some_and(platform::is_own)
        })
    }

    /// Returns `true` if the client is known to be of the same user, without asking the system.
    pub fn is_known_same_user(&self) -> bool {
        self.0.is_same_user.get().copied().unwrap_or(false)
    }
}

/// Returns `true` if this system can tell the user of a local client.
pub fn can_identify_users() -> bool {
    static CAN_IDENTIFY: OnceLock<bool> = OnceLock::new();
    *CAN_IDENTIFY.get_or_init(platform::can_identify_users)
}

/// Linux: `sock_diag` looks up one socket by its addresses, however many connections there are. `/proc/net/tcp` has
/// the same facts, but must be read as a whole.
#[cfg(target_os = "linux")]
pub(super) mod platform {
    use std::io;
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

    use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
    };

    /// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
    const BY_FAMILY: u16 = 20;
    /// `NLM_F_REQUEST` of `linux/netlink.h`.
    const IS_REQUEST: u16 = 1;
    /// `AF_INET`, `AF_INET6` and `IPPROTO_TCP`.
    const INET: u8 = 2;
    const INET6: u8 = 10;
    const TCP: u8 = 6;
    /// Size of `struct nlmsghdr`.
    const HEADER_BYTES: usize = 16;
    /// Offsets in `struct inet_diag_msg`, which starts behind the header.
    const FAMILY: usize = HEADER_BYTES;
    const STATE: usize = HEADER_BYTES + 1;
    const PORTS: usize = HEADER_BYTES + 4;
    const SOURCE: usize = HEADER_BYTES + 8;
    const DESTINATION: usize = HEADER_BYTES + 24;
    #[cfg(test)]
    const WRITE_QUEUE: usize = HEADER_BYTES + 60;
    const USER: usize = HEADER_BYTES + 64;
    const INODE: usize = HEADER_BYTES + 68;
    /// `TCP_ESTABLISHED`, `TCP_FIN_WAIT1` and `TCP_FIN_WAIT2`: the client connected, and may have sent everything.
    const CONNECTED_STATES: [u8; 3] = [1, 4, 5];

    /// Returns the user that owns the client's end of a connection, if it is on this machine.
    pub(super) fn user_of(local: SocketAddr, client: SocketAddr) -> Option<u32> {
        let (local_ip, client_ip) = (local.ip().to_canonical(), client.ip().to_canonical());
        if !local_ip.is_loopback() || !client_ip.is_loopback() {
            return None;
        }
        let local = SocketAddr::new(local_ip, local.port());
        let client = SocketAddr::new(client_ip, client.port());
        match ask(&request(client, local)) {
            Ok(reply) => read(&reply, (client, local)),
            Err(error) => {
                tracing::debug!(%error, "The system does not tell the user of a client.");
                None
            }
        }
    }

    pub(super) fn is_own(user: u32) -> bool {
        user == rustix::process::geteuid().as_raw()
    }

    /// Looks up a connection of this process. A system without the lookup answers as if there were none.
    pub(super) fn can_identify_users() -> bool {
        let own_user = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let client = TcpStream::connect(listener.local_addr()?)?;
            io::Result::Ok(user_of(listener.local_addr()?, client.local_addr()?))
        };
        own_user().ok().flatten().is_some_and(is_own)
    }

    /// Encodes the request for the socket from `source` to `destination`, both of the same family.
    fn request(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let mut body = vec![if source.is_ipv4() { INET } else { INET6 }, TCP, 0, 0];
        // Any state; it applies to lists only.
        body.extend(u32::MAX.to_ne_bytes());
        for end in [source, destination] {
            body.extend(end.port().to_be_bytes());
        }
        for end in [source, destination] {
            let mut address = [0; 16];
            match end.ip() {
                IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => address = ip.octets(),
            }
            body.extend(address);
        }
        // Any interface, and any cookie.
        body.extend(0u32.to_ne_bytes());
        body.extend([u8::MAX; 8]);
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or_default();
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(BY_FAMILY.to_ne_bytes());
        message.extend(IS_REQUEST.to_ne_bytes());
        // Sequence number and port.
        message.extend([0; 8]);
        message.extend(body);
        message
    }

    /// Sends a request to the kernel, which answers before `sendto` returns.
    fn ask(request: &[u8]) -> io::Result<Vec<u8>> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
        sendto(&socket, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut reply = vec![0; 1024];
        let (length, _) = recv(&socket, reply.as_mut_slice(), RecvFlags::DONTWAIT)?;
        reply.truncate(length);
        Ok(reply)
    }

    /// Returns the maximum number of connections that wait to be accepted at an address: `idiag_wqueue` of a listener.
    #[cfg(test)]
    pub(in crate::http::server) fn backlog_of(listener: SocketAddr) -> Option<u32> {
        let reply = ask(&request(listener, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))).ok()?;
        Some(u32::from_ne_bytes(reply.get(WRITE_QUEUE..WRITE_QUEUE + 4)?.try_into().ok()?))
    }

    /// Returns the owner of the socket in a reply, if it is the one from `source` to `destination`. The socket of a
    /// client that has closed it has no inode, and user 0 instead of its own.
    fn read(reply: &[u8], (source, destination): (SocketAddr, SocketAddr)) -> Option<u32> {
        let number = |at: usize| Some(u32::from_ne_bytes(reply.get(at..at + 4)?.try_into().ok()?));
        let port = |at: usize| Some(u16::from_be_bytes(reply.get(at..at + 2)?.try_into().ok()?));
        // A socket of IPv6 may have a mapped address.
        let address = |at: usize| {
            let octets: [u8; 16] = reply.get(at..at + 16)?.try_into().ok()?;
            Some(match *reply.get(FAMILY)? {
                INET => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
                _ => IpAddr::from(octets).to_canonical(),
            })
        };
        let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
        let is_it = kind == BY_FAMILY
            && SocketAddr::new(address(SOURCE)?, port(PORTS)?) == source
            && SocketAddr::new(address(DESTINATION)?, port(PORTS + 2)?) == destination
            && CONNECTED_STATES.contains(reply.get(STATE)?)
            && number(INODE)? != 0;
        if is_it { number(USER) } else { None }
    }
}

/// Elsewhere nothing is known about clients.
#[cfg(not(target_os = "linux"))]
mod platform {
    use std::net::SocketAddr;

    pub(super) fn user_of(_local: SocketAddr, _client: SocketAddr) -> Option<u32> {
        None
    }

    pub(super) fn is_own(_user: u32) -> bool {
        false
    }

    pub(super) fn can_identify_users() -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::Shutdown;

    use tokio::net::TcpListener;

    use super::*;

    /// Connects a client, and returns both ends.
    async fn connect(listen: &str, to: &str) -> (std::net::TcpStream, TcpStream, ServedConnection) {
        let listener = TcpListener::bind(listen).await.expect("loopback has free ports");
        let port = listener.local_addr().expect("it is bound").port();
        let client = std::net::TcpStream::connect(format!("{to}:{port}")).expect("it listens");
        let (stream, _) = listener.accept().await.expect("a client connects");
        let connection = ServedConnection::new(&stream);
        (client, stream, connection)
    }

    #[tokio::test]
    async fn a_client_of_the_same_user_is_recognized() {
        for (listen, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.2:0", "127.0.0.2"),
            ("[::1]:0", "[::1]"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "[::1]"),
            ("127.0.0.1:0", "[::ffff:127.0.0.1]"),
        ] {
            let (_client, _stream, connection) = connect(listen, to).await;
            assert!(!connection.is_known_same_user(), "the system is not asked before");
            assert!(connection.is_same_user() && connection.is_known_same_user(), "{listen} {to}");
        }
    }

    #[tokio::test]
    async fn a_client_that_has_closed_its_socket_is_nobody() {
        let (client, _stream, connection) = connect("127.0.0.1:0", "127.0.0.1").await;
        client.shutdown(Shutdown::Write).unwrap();
        assert!(connection.is_same_user(), "it can still read");
        let (client, _stream, connection) = connect("127.0.0.1:0", "127.0.0.1").await;
        drop(client);
        // The system reports such sockets as those of user 0, whom this test may run as.
        assert!(!connection.is_same_user());
    }

    #[test]
    fn a_stream_without_addresses_is_of_nobody() {
        assert!(!ServedConnection::default().is_same_user());
    }
}
