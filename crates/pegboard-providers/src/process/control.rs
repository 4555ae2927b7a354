//! What a supervisor and the process that started it say to each other.
//!
//! They hold the two ends of one socket, which is the supervisor's standard input. The first message gives it the
//! program's pipes. After that any byte means "end it all", and so does the end of the stream, which comes whenever
//! the other is gone, however it went. What comes back are reports.

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

/// The byte that ends it all.
pub(super) const END: u8 = b'E';

/// What a supervisor is given.
#[derive(Debug)]
pub(super) struct Handover {
    /// The program's standard input, output and error.
    pub(super) pipes: [OwnedFd; 3],
    /// How long everything may take to terminate.
    pub(super) grace: Duration,
}

/// Gives a supervisor the program's pipes. It can be sent before there is a supervisor.
pub(super) fn hand_over(socket: &UnixStream, pipes: [BorrowedFd<'_>; 3], grace: Duration) -> io::Result<()> {
    let grace = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(&pipes));
    debug_assert!(fits, "the space is made for three");
    sendmsg(socket, &[IoSlice::new(&grace)], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Takes the program's pipes.
pub(super) fn take_over(socket: &UnixStream) -> io::Result<Handover> {
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
        // Nothing was started yet, so it is not too late.
        fcntl_setfd(pipe, FdFlags::CLOEXEC)?;
    }
    Ok(Handover { pipes, grace: Duration::from_millis(u32::from_le_bytes(grace).into()) })
}

/// What a supervisor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program runs, with this id.
    Started(u32),
    /// The program ended, with what waiting for it gave.
    Exited(i32),
}

impl Report {
    /// How many bytes a report has.
    pub(super) const LENGTH: usize = 5;

    pub(super) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let (kind, number) = match self {
            Self::Started(pid) => (b'S', pid.to_le_bytes()),
            Self::Exited(status) => (b'X', status.to_le_bytes()),
        };
        let [a, b, c, d] = number;
        [kind, a, b, c, d]
    }

    /// The report; `None` if it is none.
    pub(super) fn from_bytes([kind, a, b, c, d]: [u8; Self::LENGTH]) -> Option<Self> {
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
    fn a_report_is_read_as_it_was_written() {
        for report in
            [Report::Started(1), Report::Started(u32::MAX), Report::Exited(-1), Report::Exited(0x0900)]
        {
            assert_eq!(Report::from_bytes(report.to_bytes()), Some(report));
        }
        assert_eq!(Report::from_bytes([0; Report::LENGTH]), None);
    }

    #[test]
    fn pipes_and_grace_arrive_and_nothing_else_is_taken_for_them() {
        use std::io::Write;
        use std::os::fd::AsFd;

        let (ours, theirs) = UnixStream::pair().unwrap();
        let pipe = ours.as_fd();
        hand_over(&ours, [pipe, pipe, pipe], Duration::from_millis(1500)).unwrap();
        assert_eq!(take_over(&theirs).unwrap().grace, Duration::from_millis(1500));

        (&ours).write_all(b"1234").unwrap();
        assert_eq!(take_over(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(ours);
        assert_eq!(take_over(&theirs).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
