//! Errors of certificates: those of a server, and those that it is checked against.

use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::CertificateError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::transport::TransportError;

/// Variable that names the file with the trusted certificates.
const TRUSTED_FILE: &str = "SSL_CERT_FILE";

/// The trusted certificates are files, and not a service of the system.
const HAS_TRUSTED_FILE: bool = cfg!(all(unix, not(target_vendor = "apple")));

/// Error of the platform's verifier if it has found no certificates. It has no variant of its own.
const NONE_LOADED: &str = "No CA certificates were loaded from the system";

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
            rustls::Error::InvalidCertificate(problem) => {
                format!("the server's certificate is not valid: {}", defect(problem)?)
            }
            rustls::Error::General(problem) => cannot_verify(problem, trusted_file().as_deref()),
            _ => return None,
        };
        Some(Self::Untrusted { what })
    }
}

/// Describes a defect of a certificate, and its fix; `None` if the error of the library says more.
fn defect(problem: &CertificateError) -> Option<&'static str> {
    Some(match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired; renew it",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; check the clocks of both machines"
        }
        // This one has no variant of its own.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority; the server needs one that the authority has issued"
        }
        _ => return None,
    })
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

/// Describes a problem of the verifier, which usually has no trusted certificates.
fn cannot_verify(problem: &str, trusted_file: Option<&Path>) -> String {
    let cause = match trusted_file {
        Some(file) => match file_problem(file) {
            Some(file_problem) => format!("{TRUSTED_FILE} ({}) {file_problem}", file.display()),
            None => format!("{problem} ({TRUSTED_FILE} is {})", file.display()),
        },
        None if problem == NONE_LOADED => {
            "the system has no trusted certificates; install the package ca-certificates".to_owned()
        }
        None => problem.to_owned(),
    };
    format!("cannot verify the server's certificate: {cause}")
}

/// Returns the reason why no certificate can be loaded from a file, if that is so.
fn file_problem(file: &Path) -> Option<String> {
    match fs::read(file) {
        Err(error) => Some(format!("cannot be read: {error}")),
        Ok(text) if CertificateDer::pem_slice_iter(&text).any(|certificate| certificate.is_ok()) => None,
        Ok(_) => Some("contains no certificate in PEM format".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_of_a_certificate_has_a_description() {
        #[derive(Debug, thiserror::Error)]
        #[error("CaUsedAsEndEntity")]
        struct FromVerifier;

        let of_verifier = CertificateError::Other(rustls::OtherError(std::sync::Arc::new(FromVerifier)));
        for (problem, expected) in [
            (CertificateError::Expired, Some("it has expired")),
            (CertificateError::NotValidYet, Some("it is not valid yet")),
            (of_verifier, Some("it is the certificate of an authority")),
            (CertificateError::Revoked, None),
        ] {
            let described = TransportError::untrusted(&rustls::Error::InvalidCertificate(problem));
            let described = described.map(|error| error.to_string());
            let expected = expected.map(|text| format!("the server's certificate is not valid: {text}"));
            assert_eq!(described.is_some(), expected.is_some());
            assert!(described.unwrap_or_default().starts_with(&expected.unwrap_or_default()));
        }
    }

    #[test]
    fn a_problem_of_the_verifier_has_its_true_cause() {
        let folder = tempfile::tempdir().unwrap();
        let section = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = section.replace("CERTIFICATE", "PRIVATE KEY");
        let with_comment = format!("An authority\n{key}{section}");
        let files = [
            ("empty.pem", ""),
            ("key.pem", &key),
            ("truncated.pem", &section[..40]),
            ("certificate.pem", section),
            ("second.pem", &with_comment),
        ];
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut described = vec![cannot_verify(NONE_LOADED, None), cannot_verify("no time", None)];
        for name in files.map(|(name, _)| name).into_iter().chain(["missing.pem"]) {
            described.push(cannot_verify("no time", Some(&folder.path().join(name))));
        }
        let described = described.join("\n").replace("cannot verify the server's certificate: ", "");
        let described = described.replace(&folder.path().display().to_string(), "FOLDER");
        insta::assert_snapshot!(described, @r"
        the system has no trusted certificates; install the package ca-certificates
        no time
        SSL_CERT_FILE (FOLDER/empty.pem) contains no certificate in PEM format
        SSL_CERT_FILE (FOLDER/key.pem) contains no certificate in PEM format
        SSL_CERT_FILE (FOLDER/truncated.pem) contains no certificate in PEM format
        no time (SSL_CERT_FILE is FOLDER/certificate.pem)
        no time (SSL_CERT_FILE is FOLDER/second.pem)
        SSL_CERT_FILE (FOLDER/missing.pem) cannot be read: No such file or directory (os error 2)
        ");
    }
}
