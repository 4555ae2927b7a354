//! Our client against our server, over every transport and in both eras, and both against invalid input.

mod eras;
mod framing;
mod hostile;
mod http_server;
mod order;
mod support;
