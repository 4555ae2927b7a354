//! Control protocol between a supervisor and its parent.
//!
//! They hold the two ends of a socket, which is the supervisor's stdin. The first message passes the pipes of
//! the program. After that any byte means "end everything", and so does the end of the stream, which comes
//! whenever the parent is gone, even if it was killed. The supervisor sends reports.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// The byte that requests a stop.
pub(super) const STOP_BYTE: u8 = b'E';

/// Setup that a supervisor receives.
#[derive(Debug)]
pub(super) struct SupervisorSetup {
    /// The program's stdin, stdout and stderr.
    pub(super) pipes: [OwnedFd; 3],
    /// Grace period between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

/// Sends the setup. The supervisor need not have started yet.
pub(super) fn send_setup(socket: &UnixStream, pipes: [BorrowedFd<'_>; 3], grace: Duration) -> io::Result<()> {
    let grace = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let is_pushed = ancillary.push(SendAncillaryMessage::ScmRights(&pipes));
    debug_assert!(is_pushed, "the buffer holds three descriptors");
    sendmsg(socket, &[IoSlice::new(&grace)], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives the setup.
pub(super) fn receive_setup(socket: &UnixStream) -> io::Result<SupervisorSetup> {
    let mut grace = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut grace)], &mut ancillary, RecvFlags::empty())?;
    let mut pipes = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            pipes.extend(descriptors);
        }
    }
    if received.bytes != grace.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let pipes: [OwnedFd; 3] = pipes.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    for pipe in &pipes {
        // No child has been started yet, so none has inherited it.
        fcntl_setfd(pipe, FdFlags::CLOEXEC)?;
    }
    Ok(SupervisorSetup { pipes, grace: Duration::from_millis(u32::from_le_bytes(grace).into()) })
}

/// Report of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SupervisorReport {
    /// The program runs with this process id.
    Started(u32),
    /// The program exited with this raw wait status.
    Exited(i32),
}

impl SupervisorReport {
    /// Length of an encoded report.
    pub(super) const LEN: usize = 5;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let (kind, number) = match self {
            Self::Started(pid) => (b'S', pid.to_le_bytes()),
            Self::Exited(status) => (b'X', status.to_le_bytes()),
        };
        let [a, b, c, d] = number;
        [kind, a, b, c, d]
    }

    /// Decodes a report; `None` if it is malformed.
    pub(super) fn from_bytes([kind, a, b, c, d]: [u8; Self::LEN]) -> Option<Self> {
        match kind {
            b'S' => Some(Self::Started(u32::from_le_bytes([a, b, c, d]))),
            b'X' => Some(Self::Exited(i32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_a_round_trip() {
        for report in [
            SupervisorReport::Started(1),
            SupervisorReport::Started(u32::MAX),
            SupervisorReport::Exited(-1),
            SupervisorReport::Exited(0x0900),
        ] {
            assert_eq!(SupervisorReport::from_bytes(report.to_bytes()), Some(report));
        }
        assert_eq!(SupervisorReport::from_bytes([0; SupervisorReport::LEN]), None);
    }

    #[test]
    fn a_setup_arrives_and_other_data_is_rejected() {
        use std::io::Write;
        use std::os::fd::AsFd;

        let (near, far) = UnixStream::pair().unwrap();
        let pipe = near.as_fd();
        send_setup(&near, [pipe, pipe, pipe], Duration::from_millis(1500)).unwrap();
        assert_eq!(receive_setup(&far).unwrap().grace, Duration::from_millis(1500));

        (&near).write_all(b"1234").unwrap();
        assert_eq!(receive_setup(&far).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(near);
        assert_eq!(receive_setup(&far).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
