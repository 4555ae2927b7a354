//! Errors of certificates: those of a server, and those that it is checked against.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::CertificateError;

use crate::link::TransportError;

/// Variable that names the file with the trusted certificates.
const TRUSTED_FILE: &str = "SSL_CERT_FILE";

/// The trusted certificates are files, and not a service of the system.
const HAS_TRUSTED_FILE: bool = cfg!(all(unix, not(target_vendor = "apple")));

/// Advice for a certificate of an unknown authority.
const TRUST_AUTHORITY: &str = if HAS_TRUSTED_FILE {
    "if a private authority issued it, set SSL_CERT_FILE to a PEM file with the authority's certificate"
} else {
    "if a private authority issued it, add the authority's certificate to the system's trusted certificates"
};

impl TransportError {
    /// Returns the error of a certificate, if `error` is one or was caused by one: the server's certificate is
    /// not trusted, or there are no certificates to check it against.
    pub fn untrusted(error: &(dyn Error + 'static)) -> Option<Self> {
        let what = match tls_error(error)? {
            // A signature is bad if the trusted authority only has the name of the issuer, and not its key.
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => match trusted_file() {
                Some(file) => format!(
                    "the server's certificate is not trusted: add the certificate of its authority to \
                     {TRUSTED_FILE} ({})",
                    file.display()
                ),
                None => format!("the server's certificate is not trusted: {TRUST_AUTHORITY}"),
            },
            // The verifier reports that it has no certificates in no other way.
            rustls::Error::General(_) => match trusted_file() {
                Some(file) => format!(
                    "cannot verify the server's certificate: {TRUSTED_FILE} ({}) {}",
                    file.display(),
                    problem_of(&file)
                ),
                None => {
                    "cannot verify the server's certificate: the system has no trusted certificates; install \
                         the package ca-certificates"
                        .to_owned()
                }
            },
            _ => return None,
        };
        Some(Self::Untrusted { what })
    }
}

/// Returns the TLS error in a chain of causes. The cause of an I/O error that wraps another is the cause of the
/// wrapped one, so that it has to be unwrapped.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

/// Returns the file with the trusted certificates; `None` if they are those of the system.
fn trusted_file() -> Option<PathBuf> {
    env::var_os(TRUSTED_FILE).filter(|_| HAS_TRUSTED_FILE).map(PathBuf::from)
}

/// Returns the reason why no certificate was loaded from a file.
fn problem_of(file: &Path) -> String {
    match File::open(file).and_then(|mut file| file.read(&mut [0])) {
        Err(error) => format!("cannot be read: {error}"),
        Ok(_) => "contains no certificate in PEM format".to_owned(),
    }
}
