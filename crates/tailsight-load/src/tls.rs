//! TLS by rustls, without I/O of its own. In: plain bytes and what came from the socket. Out: what goes to the socket.
//!
//! rustls allocates per record: the timing path is free of allocation on all transports but this one.

use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tailsight_protocol::Kind;

use crate::error::Cause;
use crate::{LoadError, Plan, Trust, stamps};

/// What all TLS connections of a plan share.
#[derive(Debug, Clone)]
pub(crate) struct TlsSetup {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSetup {
    /// Reads the certificates that are trusted.
    pub(crate) fn new(plan: &Plan) -> Result<Self, LoadError> {
        let target = || plan.target.to_string();
        let fail = |reason: String| LoadError::Tls { target: target(), reason, source: None };
        let trusted =
            |file: &Path| roots(file).map_err(|(reason, source)| LoadError::Tls { target: target(), reason, source });
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| {
                let (reason, source) = ("no version of it can be spoken".to_owned(), Some(e.into()));
                LoadError::Tls { target: target(), reason, source }
            })?;
        let mut config = match &plan.trust {
            Trust::Anyone => {
                let verifier = Verifier { provider, trusts: Trusts::Anyone };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            }
            Trust::File(path) => {
                let authorities = WebPkiServerVerifier::builder_with_provider(trusted(path)?.into(), provider.clone());
                let authorities = authorities.build().map_err(|e| LoadError::Tls {
                    target: target(),
                    reason: format!("{} cannot be trusted", path.display()),
                    source: Some(e.into()),
                })?;
                let certificates = CertificateDer::pem_file_iter(path).into_iter().flatten().filter_map(Result::ok);
                let trusts = Trusts::Listed { authorities, certificates: certificates.collect() };
                let verifier = Verifier { provider, trusts };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            }
            Trust::System => {
                let file = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
                let file = file.unwrap_or_else(|| "/etc/ssl/certs/ca-certificates.crt".into());
                builder.with_root_certificates(trusted(&file)?).with_no_client_auth()
            }
        };
        config.alpn_protocols = match plan.protocol {
            Kind::Http1 => vec![b"http/1.1".to_vec()],
            Kind::Http2 => vec![b"h2".to_vec()],
            _ => Vec::new(),
        };
        let name = plan.server_name.as_deref().or(plan.target.host()).unwrap_or("localhost").to_owned();
        let name = ServerName::try_from(name.clone()).map_err(|_| {
            fail(format!(
                "`{name}` is not a valid server name; give a name from the server's \
             certificate"
            ))
        })?;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// The authorities in a file; or what is wrong with it, and what the library said.
fn roots(path: &Path) -> Result<RootCertStore, (String, Option<Cause>)> {
    let mut store = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|e| (format!("cannot read {}", path.display()), Some(e.into())))?;
    let (added, _) = store.add_parsable_certificates(certificates.filter_map(Result::ok));
    if added == 0 {
        let why = format!("{} holds no certificate; name a PEM file of the authority to trust", path.display());
        return Err((why, None));
    }
    Ok(store)
}

/// The TLS of one connection.
pub(crate) struct Tls {
    connection: ClientConnection,
    /// Decrypted bytes; lent out while they are parsed.
    plain: Vec<u8>,
    records: Records,
}

/// Where in the stream of records the bytes that came end.
#[derive(Debug, Default)]
struct Records {
    header: [u8; 5],
    /// How much of the header has come.
    headed: usize,
    /// Bytes of the record's body that are still to come.
    left: usize,
}

impl Records {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let body = self.left.min(bytes.len());
                self.left -= body;
                bytes = &bytes[body..];
                continue;
            }
            self.header[self.headed] = bytes[0];
            self.headed += 1;
            bytes = &bytes[1..];
            if self.headed == self.header.len() {
                self.headed = 0;
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            }
        }
    }

    fn is_within_one(&self) -> bool {
        self.left > 0 || self.headed > 0
    }
}

impl Tls {
    pub(crate) fn new(setup: &TlsSetup) -> Result<Self, rustls::Error> {
        let mut connection = ClientConnection::new(setup.config.clone(), setup.name.clone())?;
        // What waits is bounded by the outstanding requests, not here.
        connection.set_buffer_limit(None);
        Ok(Self { connection, plain: Vec::with_capacity(64 << 10), records: Records::default() })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Takes all the plain bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(bytes)
    }

    /// Sends waiting records; returns how many bytes the socket took.
    pub(crate) fn send(&mut self, fd: RawFd, stamp: stamps::Ask) -> io::Result<usize> {
        struct Out(RawFd, stamps::Ask);
        impl Write for Out {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                stamps::send(self.0, bytes, self.1)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        self.connection.write_tls(&mut Out(fd, stamp))
    }

    /// Decrypts what came; the error says what is wrong. The bytes must be given back ([`Tls::give_back`]).
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Result<&mut Vec<u8>, String> {
        self.plain.clear();
        self.records.take(bytes);
        while !bytes.is_empty() {
            self.connection.read_tls(&mut bytes).map_err(|e| format!("TLS: {e}"))?;
            let state = self.connection.process_new_packets().map_err(|e| format!("TLS: {e}"))?;
            let waiting = state.plaintext_bytes_to_read();
            let start = self.plain.len();
            self.plain.resize(start + waiting, 0);
            self.connection.reader().read_exact(&mut self.plain[start..]).map_err(|e| format!("TLS: {e}"))?;
        }
        Ok(&mut self.plain)
    }

    /// Whether the last bytes received ended within a record: they came with the earlier replies but are part of none of
    /// them.
    pub(crate) fn ended_within_record(&self) -> bool {
        self.records.is_within_one()
    }

    /// Gives the buffer back for the next read.
    pub(crate) fn give_back(&mut self, plain: Vec<u8>) {
        self.plain = plain;
    }
}

/// Whom a [`Verifier`] trusts.
#[derive(Debug)]
enum Trusts {
    /// Every certificate.
    Anyone,
    /// The authorities in a file, and a server that shows one of its certificates itself. `openssl req -x509` makes a certificate that
    /// is its own authority, and says so; webpki refuses an authority as a server, curl and browsers do not.
    Listed { authorities: Arc<WebPkiServerVerifier>, certificates: Vec<CertificateDer<'static>> },
}

/// Signatures are checked whoever is trusted, so the peer has the key of the certificate that it shows.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trusts: Trusts,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trusts::Listed { authorities, certificates } = &self.trusts else {
            return Ok(ServerCertVerified::assertion());
        };
        let result = authorities.verify_server_cert(shown, intermediates, name, ocsp, now);
        // webpki looks at the time before it looks at this, and at the name after it. Its own type of error is not public.
        let is_authority = |error: &rustls::Error| format!("{error:?}").contains("CaUsedAsEndEntity");
        if result.as_ref().is_err_and(is_authority) && certificates.iter().any(|listed| listed == shown) {
            verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        result
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::Records;

    /// However the bytes of two records are cut, only an end at the end of a record is one.
    #[test]
    fn records_end_where_their_headers_say() {
        let stream = [&[23, 3, 3, 0, 4][..], b"abcd", &[23, 3, 3, 1, 0], &[0; 256]].concat();
        for cut in 1..stream.len() {
            let mut records = Records::default();
            records.take(&stream[..cut]);
            assert_eq!(records.is_within_one(), cut != 9, "{cut}");
            records.take(&stream[cut..]);
            assert!(!records.is_within_one(), "{cut}");
        }
    }
}
