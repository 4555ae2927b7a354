//! Multipart form data.

use bytes::{BufMut, Bytes, BytesMut};
use pegboard_core::fingerprint::Fingerprint;

/// Part of a form.
pub(super) struct FormPart {
    pub(super) name: String,
    pub(super) file: FormFile,
}

/// Content of a part.
pub(super) struct FormFile {
    pub(super) bytes: Bytes,
    pub(super) filename: Option<String>,
    pub(super) content_type: Option<String>,
}

/// Returns the content type and the bytes of a form.
pub(super) fn write(parts: &[FormPart]) -> Result<(String, Bytes), String> {
    let boundary = boundary(parts);
    let mut bytes = BytesMut::new();
    for FormPart { name, file } in parts {
        bytes.put_slice(
            format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{}\"", quoted(name)).as_bytes(),
        );
        if let Some(filename) = &file.filename {
            bytes.put_slice(format!("; filename=\"{}\"", quoted(filename)).as_bytes());
        }
        if let Some(content_type) = &file.content_type {
            if content_type.chars().any(char::is_control) {
                return Err("'contentType' of a file contains control characters".to_owned());
            }
            bytes.put_slice(format!("\r\ncontent-type: {content_type}").as_bytes());
        }
        bytes.put_slice(b"\r\n\r\n");
        bytes.put_slice(&file.bytes);
        bytes.put_slice(b"\r\n");
    }
    bytes.put_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok((format!("multipart/form-data; boundary={boundary}"), bytes.freeze()))
}

/// Derives a boundary from all parts, so that it occurs in none of them.
fn boundary(parts: &[FormPart]) -> String {
    let mut fingerprint = Fingerprint::default();
    for part in parts {
        fingerprint.add(&part.name);
        fingerprint.add(&part.file.bytes);
    }
    format!("pegboard-{}", &fingerprint.finish()[..40])
}

/// Escapes a quoted name as browsers do.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
