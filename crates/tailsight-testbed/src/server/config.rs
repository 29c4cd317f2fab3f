//! The servers' options and the command lines and configuration files made of them. In: options. Out: arguments, text.

use std::path::Path;

/// How memcached is to run.
#[derive(Debug, Clone)]
pub struct MemcachedOpts {
    /// TCP port, and UDP port when `udp`.
    pub port: u16,
    /// Worker threads.
    pub threads: usize,
    /// The CPU to pin it to.
    pub cpu: Option<usize>,
    /// Whether to answer on UDP too.
    pub udp: bool,
    /// The most requests that it takes from a connection at a time (`-R`; its own default is 20).
    pub per_event: Option<u32>,
}

impl Default for MemcachedOpts {
    fn default() -> Self {
        Self { port: 11211, threads: 1, cpu: None, udp: false, per_event: None }
    }
}

impl MemcachedOpts {
    /// The command line. Without `-l`, memcached listens on all IPv4 and IPv6 addresses.
    #[must_use]
    pub fn args(&self, is_root: bool) -> Vec<String> {
        let udp_port = if self.udp { self.port } else { 0 };
        let mut args: Vec<String> = [
            "-p",
            &self.port.to_string(),
            "-U",
            &udp_port.to_string(),
            "-t",
            &self.threads.to_string(),
            "-m",
            "64",
            "-c",
            "4096",
        ]
        .map(String::from)
        .into();
        if is_root {
            // It refuses to run as root unless told to; a change of user would also undo its death with us.
            args.extend(["-u".into(), "root".into()]);
        }
        if let Some(requests) = self.per_event {
            args.extend(["-R".into(), requests.to_string()]);
        }
        args
    }
}

/// How nginx is to run.
#[derive(Debug, Clone)]
pub struct NginxOpts {
    /// TCP port.
    pub port: u16,
    /// Worker processes, at least 1.
    pub workers: usize,
    /// The CPU to pin the master and its workers to.
    pub cpu: Option<usize>,
}

impl Default for NginxOpts {
    fn default() -> Self {
        Self { port: 8088, workers: 1, cpu: None }
    }
}

impl NginxOpts {
    /// How many workers it gets: with 0, nginx accepts and never answers.
    pub(super) fn worker_count(&self) -> usize {
        self.workers.max(1)
    }

    /// The configuration file, with every path inside `root`.
    pub(super) fn config(&self, root: &Path, is_root: bool, ipv6: bool) -> String {
        let root = root.display();
        let (port, workers) = (self.port, self.worker_count());
        // Without a `user` line root's workers would become a user that cannot read the folder.
        let user = if is_root { "user root;" } else { "" };
        let listen_v6 = if ipv6 { format!("listen [::]:{port} ipv6only=on backlog=4096;") } else { String::new() };
        format!(
            "daemon off; master_process on; worker_processes {workers}; {user}
pid {root}/nginx.pid;
error_log {root}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  default_type application/octet-stream;
  sendfile on; keepalive_requests 1000000000; keepalive_timeout 3600s;
  server {{
    listen 0.0.0.0:{port} backlog=4096; {listen_v6}
    location / {{ return 200 \"hello from the tailsight lab\\n\"; }}
    location = /file {{ root {root}; }}
    location = /page {{ root {root}; }}
  }}
}}
"
        )
    }
}

/// How redis-server is to run.
#[derive(Debug, Clone)]
pub struct RedisOpts {
    /// TCP port.
    pub port: u16,
    /// The CPU to pin it to.
    pub cpu: Option<usize>,
}

impl Default for RedisOpts {
    fn default() -> Self {
        Self { port: 6379, cpu: None }
    }
}

impl RedisOpts {
    /// The command line. Protected mode would refuse clients of another address.
    pub(super) fn args(&self, ipv6: bool) -> Vec<String> {
        let mut args: Vec<String> = [
            "--port",
            &self.port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
            "--protected-mode",
            "no",
            "--daemonize",
            "no",
            "--bind",
            "0.0.0.0",
        ]
        .map(String::from)
        .into();
        if ipv6 {
            args.push("::".into());
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_udp_is_off_unless_asked() {
        let args = MemcachedOpts::default().args(false).join(" ");
        assert!(args.contains("-U 0"), "{args}");
        assert!(!args.contains("root"), "{args}");
        let opts = MemcachedOpts { udp: true, port: 1234, ..Default::default() };
        let args = opts.args(true).join(" ");
        assert!(args.contains("-U 1234") && args.contains("-u root"), "{args}");
    }

    #[test]
    fn nginx_keeps_its_paths_in_its_folder() {
        let text = NginxOpts::default().config(Path::new("/tmp/x"), true, false);
        assert!(text.contains("user root;") && text.contains("pid /tmp/x/nginx.pid"));
        assert!(!text.contains("[::]"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
