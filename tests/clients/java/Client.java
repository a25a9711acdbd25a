import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

/**
 * What Java's two HTTP clients do at a proxy that the virtual machine's options name. What does not hold is an
 * exception, and ends it with 1.
 *
 * <pre>
 * Client http2 BASE | http1 BASE    HttpClient
 * Client old BASE                   HttpURLConnection
 * Client events URL                 prints each event as it comes
 * Client socket URL                 a WebSocket
 * Client get URL | oldget URL       the status and the body, or the exception as a program sees it
 * </pre>
 */
public class Client {
	static final int SIZE = 3 << 20;
	static HttpClient client;

	static void check(boolean ok, Object said) {
		if (!ok)
			throw new IllegalStateException(String.valueOf(said));
	}

	static HttpRequest.Builder to(String url) {
		return HttpRequest.newBuilder(URI.create(url));
	}

	static HttpResponse<String> send(HttpRequest.Builder b) throws Exception {
		return client.send(b.build(), BodyHandlers.ofString());
	}

	static void modern(String base, HttpClient.Version version) throws Exception {
		HttpResponse<String> r = send(to(base + "/ok/a"));
		check(r.statusCode() == 200 && r.body().equals("ok /ok/a\n") && r.version() == version, r + r.body());
		byte[] data = new byte[SIZE];
		r = send(to(base + "/upload").POST(BodyPublishers.ofByteArray(data)));
		check(r.body().contains("\"bytes\": " + SIZE), r.body());
		r = send(to(base + "/upload").PUT(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(data))));
		check(r.body().contains("\"bytes\": " + SIZE), r.body());
		check(client.send(to(base + "/chunked?n=" + SIZE).build(), BodyHandlers.ofByteArray()).body().length == SIZE, "chunked");

		List<CompletableFuture<HttpResponse<String>>> many = new ArrayList<>();
		for (int i = 0; i < 40; i++)
			many.add(client.sendAsync(to(base + "/ok/" + i).build(), BodyHandlers.ofString()));
		for (int i = 0; i < many.size(); i++)
			check(many.get(i).get(60, TimeUnit.SECONDS).body().equals("ok /ok/" + i + "\n"), i);

		refused(send(to(base + "/no/a")));
		refused(send(to(base + "/no/a").POST(BodyPublishers.ofByteArray(data))));
		refused(send(to(base + "/no/a").POST(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(data)))));
		r = send(to(base + "/ok/after"));
		check(r.statusCode() == 200, r);
	}

	static void refused(HttpResponse<String> r) {
		check(r.statusCode() == 403 && r.body().contains("\"reason\":\"denied_by_rule\""), r + r.body());
		check(r.headers().firstValue("proxy-status").orElse("").contains("denied_by_rule"), r.headers());
	}

	static HttpURLConnection open(String url) throws IOException {
		return (HttpURLConnection) URI.create(url).toURL().openConnection();
	}

	static String all(InputStream in) throws IOException {
		try (in) {
			return new String(in.readAllBytes(), StandardCharsets.UTF_8);
		}
	}

	static HttpURLConnection post(String url, boolean chunked) throws IOException {
		HttpURLConnection c = open(url);
		c.setDoOutput(true);
		if (chunked)
			c.setChunkedStreamingMode(0);
		try (OutputStream out = c.getOutputStream()) {
			out.write(new byte[SIZE]);
		}
		return c;
	}

	static void old(String base) throws Exception {
		for (int i = 0; i < 5; i++)
			check(all(open(base + "/ok/a").getInputStream()).equals("ok /ok/a\n"), "ok");
		check(all(post(base + "/upload", false).getInputStream()).contains("\"bytes\": " + SIZE), "upload");
		check(all(post(base + "/upload", true).getInputStream()).contains("\"bytes\": " + SIZE), "upload in chunks");
		HttpURLConnection c = open(base + "/no/a");
		check(c.getResponseCode() == 403 && c.getResponseMessage().equals("Forbidden by stile (denied_by_rule)"), c.getResponseMessage());
		check(all(c.getErrorStream()).contains("reason: denied_by_rule\n"), "refusal"); // it asks for text/html
		c = post(base + "/no/a", false);
		check(c.getResponseCode() == 403 && all(c.getErrorStream()).contains("denied_by_rule"), "refused upload");
		try {
			open(base + "/no/a").getInputStream();
			check(false, "not refused");
		} catch (IOException e) {
			check(e.getMessage().contains("403"), e);
		}
	}

	static void events(String url) throws Exception {
		Iterator<String> lines = client.send(to(url).build(), BodyHandlers.ofLines()).body().iterator();
		while (lines.hasNext()) {
			String line = lines.next();
			if (!line.isEmpty())
				System.out.println(line);
		}
	}

	static class Said implements WebSocket.Listener {
		final StringBuilder text = new StringBuilder();
		final CompletableFuture<String> answer = new CompletableFuture<>(), end = new CompletableFuture<>();

		@Override public CompletionStage<?> onText(WebSocket s, CharSequence data, boolean last) {
			text.append(data);
			if (last)
				answer.complete(text.toString());
			s.request(1);
			return null;
		}

		@Override public CompletionStage<?> onClose(WebSocket s, int code, String reason) {
			end.complete(code + reason);
			return null;
		}
	}

	static void socket(String url) throws Exception {
		Said said = new Said();
		WebSocket s = client.newWebSocketBuilder().buildAsync(URI.create(url), said).get(60, TimeUnit.SECONDS);
		s.sendText("x".repeat(70000), true).get(60, TimeUnit.SECONDS);
		System.out.println(said.answer.get(60, TimeUnit.SECONDS).length());
		s.sendClose(1000, "").get(60, TimeUnit.SECONDS);
		System.out.println(said.end.get(60, TimeUnit.SECONDS));
	}

	static void get(String url, boolean old) {
		try {
			if (old)
				System.out.println(all(open(url).getInputStream()));
			else {
				HttpResponse<String> r = send(to(url));
				System.out.println(r.statusCode() + " " + r.body());
			}
		} catch (Exception e) {
			System.out.println(e);
		}
	}

	public static void main(String[] args) throws Exception {
		HttpClient.Version version = args[0].equals("http1") ? HttpClient.Version.HTTP_1_1 : HttpClient.Version.HTTP_2;
		client = HttpClient.newBuilder().version(version).build();
		switch (args[0]) {
		case "http1":
		case "http2": modern(args[1], version); System.out.println("well"); break;
		case "old": old(args[1]); System.out.println("well"); break;
		case "events": events(args[1]); break;
		case "socket": socket(args[1]); break;
		case "get":
		case "oldget": get(args[1], args[0].equals("oldget")); break;
		default: check(false, args[0]);
		}
		System.out.flush();
		System.exit(0); // its threads would wait for more
	}
}
