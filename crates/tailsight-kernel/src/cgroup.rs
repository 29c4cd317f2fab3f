//! What the path of a control group says of whose it is. In: a path as `/proc/PID/cgroup` has it. Out: the unit of systemd, the container.

/// The unit of systemd that a control group is of, e.g. `nginx.service`: the innermost service or scope of its path.
pub fn unit(cgroup: &str) -> Option<&str> {
    let is_unit = |part: &&str| [".service", ".scope"].iter().any(|end| part.len() > end.len() && part.ends_with(end));
    cgroup.split('/').rev().find(is_unit)
}

/// The container that a control group is of: the innermost part of its path that holds an id of 64 hexadecimal digits, as
/// Docker, Podman, containerd and CRI-O make them, whatever stands before and after.
pub fn container(cgroup: &str) -> Option<&str> {
    cgroup.split('/').rev().find_map(|part| {
        // `docker-ID.scope`, `libpod-ID.scope`, `cri-containerd-ID.scope`, `crio-ID`, `ID`, `PARENT:cri-containerd:ID`.
        part.split(['-', '.', ':']).find(|word| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()))
    })
}

/// What people call a container: `NAMESPACE/POD/NAME` as far as these are known, in this order, or the beginning of its id.
pub fn container_title(id: &str, names: [Option<&str>; 3]) -> String {
    /// As many digits as engines show.
    const BEGINNING: usize = 12;
    let title = names.into_iter().flatten().collect::<Vec<_>>().join("/");
    if title.is_empty() { id.chars().take(BEGINNING).collect() } else { title }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4e8b0c9d5a7e6f1b2c3d4e5f60718293a4b5c6d7e8f90112233445566778ab";

    /// Paths as the programs make them: systemd, Docker with both drivers, Podman, Kubernetes with containerd and CRI-O.
    #[test]
    fn units_and_containers_of_control_groups() {
        for (path, unit_is, container_is) in [
            ("/system.slice/nginx.service".to_owned(), Some("nginx.service"), None),
            ("/system.slice/system-getty.slice/getty@tty1.service".to_owned(), Some("getty@tty1.service"), None),
            ("/user.slice/user-1000.slice/session-3.scope".to_owned(), Some("session-3.scope"), None),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope"
                    .to_owned(),
                Some("vte-spawn-1.scope"),
                None,
            ),
            (format!("/system.slice/docker-{ID}.scope"), Some("docker"), Some(ID)),
            (format!("/docker/{ID}"), None, Some(ID)),
            (format!("/docker/{ID}/init.scope"), Some("init.scope"), Some(ID)),
            (format!("/machine.slice/libpod-{ID}.scope/container"), Some("libpod"), Some(ID)),
            (
                format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
                Some("libpod"),
                Some(ID),
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f0c7d1e_2b0a.slice/cri-containerd-{ID}.scope"
                ),
                Some("cri-containerd"),
                Some(ID),
            ),
            (format!("/kubepods/besteffort/pod8c1f2d34-aaaa-bbbb-cccc-0123456789ab/{ID}"), None, Some(ID)),
            (
                format!("/kubepods.slice/kubepods-pod8c1f2d34.slice/crio-{ID}.scope"),
                Some("crio"),
                Some(ID),
            ),
            (format!("/system.slice/kubelet.service/kubepods-pod1.slice:cri-containerd:{ID}"), Some("kubelet.service"), Some(ID)),
            ("/".to_owned(), None, None),
            ("/.service".to_owned(), None, None),
            // A pod's id, and hexadecimal digits that are not 64.
            ("/kubepods/pod8c1f2d34-aaaa-bbbb-cccc-0123456789ab".to_owned(), None, None),
            (format!("/docker/{ID}0"), None, None),
        ] {
            let expected = unit_is.map(|u| if u.contains('.') { u.to_owned() } else { format!("{u}-{ID}.scope") });
            assert_eq!(unit(&path).map(str::to_owned), expected, "{path}");
            assert_eq!(container(&path), container_is, "{path}");
        }
    }
}
