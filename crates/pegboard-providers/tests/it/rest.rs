//! REST tools with local web services.

mod harness;

mod answers;
mod hostile;
mod requests;
mod streams;
